// What a site's administrator types, once. The token stands in it: it works once, and soon ends.

import type { IssuedInvitation } from "../api/types";

export type Way = "docker" | "helm" | "python";

export const WAYS: { value: Way; label: string }[] = [
  { value: "docker", label: "Docker" },
  { value: "helm", label: "Helm" },
  { value: "python", label: "Python" },
];

/** `terms`: digest of what the site agrees to; null: to nothing. */
export function startLine(way: Way, hub: string, { token, participant }: IssuedInvitation, ca: string | null, terms: string | null): string {
  switch (way) {
    case "docker":
      return (
        `docker run -d --name hanse-${participant} --restart unless-stopped --read-only --tmpfs /tmp ` +
        `-v hanse-${participant}:/var/lib/hanse-datapod -v /srv/data:/data:ro -p 127.0.0.1:8095:8095 -e HANSE_WINDOW=0.0.0.0:8095 ` +
        `-e HANSE_JOIN_URL=${hub} -e HANSE_TOKEN=${token} ${terms ? `-e HANSE_ACCEPT=${terms} ` : ""}${ca ? '-v "$PWD/hub-ca.pem:/etc/hanse/hub-ca.pem:ro" -e HANSE_HUB_CA=/etc/hanse/hub-ca.pem ' : ""}` +
        `-e HANSE_DATA=/data/train.csv hanse-datapod:0.1.0`
      );
    case "helm":
      return (
        `helm install ${participant} hanse-datapod-0.1.0.tgz -n ${participant} --create-namespace ` +
        `--set hub.url=${hub},join.token=${token}${terms ? `,join.accept=${terms}` : ""}${ca ? " --set-file hub.ca=hub-ca.pem" : ""} --values ${participant}.yaml`
      );
    case "python":
      return (
        `hanse site join ${hub} ${token} --home ${participant}${terms ? ` --accept ${terms}` : ""}${ca ? ` --ca-fingerprint ${ca}` : ""} && ` +
        `hanse site run --home ${participant} --data train.csv`
      );
  }
}

/** `sha256:` and the SHA-256 of a certificate's DER form: by it alone a site knows the hub's own authority. */
export async function fingerprint(pem: string): Promise<string> {
  const body = /-----BEGIN CERTIFICATE-----([^-]+)-----END CERTIFICATE-----/.exec(pem)?.[1] ?? "";
  const der = Uint8Array.from(atob(body.replace(/\s/g, "")), (character) => character.charCodeAt(0));
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", der));
  return `sha256:${[...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
