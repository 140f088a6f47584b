"""Values that charts are rendered with, from the least to the most: each is linted, checked against the schemas of
Kubernetes, and held to what every pod and every manifest must be."""

from __future__ import annotations

from typing import Any

Values = dict[str, Any]

APART: Values = {
    "bus": {"url": "tls://bus.hub.example.org:4222", "existingSecret": "from-the-hub"},
    "store": {"url": "https://store.hub.example.org", "existingSecret": "from-the-hub"},
}
SITE: Values = {
    "hub": {"url": "https://hub.example.org"},
    "data": {"volumes": [{"name": "ward", "existingClaim": "ward-data"}], "train": "/data/ward/train.csv"},
}
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
CODE = 'def train(context):\n    "größer\\n"\n\n\ndef test(context):\n    pass\n'
CODE_DIGEST = "28ed85b0115a21d04fe4d43507f6b68c7dfa426ab9b8b3df039412c3b58dd834"
PLACED: Values = {
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "reserved", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "podAnnotations": {"team": "research"},
    "podLabels": {"cost-center": "42"},
    "extraEnv": {"HANSE_LOG_LEVEL": "debug"},
    "otlpEndpoint": "http://collector.observability:4318",
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
}
SCRAPER: Values = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "observability"}}}

EVERYTHING: Values = {
    "global": {"image": {"registry": "registry.example.org/hanse", "pullSecrets": ["pull"]}},
    "otlpEndpoint": "http://collector.observability:4318",
    "hub": {
        "publicUrl": "https://hub.example.org",
        "consoleUrl": "https://hanse.example.org",
        "signIn": {
            "local": False,
            "provider": {
                "issuer": "https://login.example.org",
                "client": "hanse",
                "secret": "oidc",
                "roles": {"admins": {"role": "operator"}, "cardiology": {"role": "owner", "projects": ["triage"]}},
            },
        },
    },
    "nats": {
        "publicUrl": "wss://bus.example.org",
        "leaf": {"enabled": True},
        "service": {"type": "LoadBalancer"},
        "regions": {"eu": {"publicUrl": "tls://leaf.eu.example.org:4222"}, "us": {}},
    },
    "store": {"publicUrl": "https://store.example.org", "publicCaSecret": "proxy-ca"},
    "tls": {"source": "cert-manager", "hosts": ["bus.example.org"]},
    "certManager": {"enabled": True, "issuerRef": {"name": "letters"}},
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "annotations": {"nginx.ingress.kubernetes.io/proxy-body-size": "0"},
        "api": {"host": "hub.example.org", "path": "/v1"},
        "console": {"host": "hub.example.org"},
        "bus": {"host": "bus.example.org"},
        "store": {"host": "store.example.org"},
    },
    "gateway": {
        "enabled": True,
        "parentRefs": [{"name": "public", "namespace": "gateways"}],
        "api": {"host": "hub.example.org"},
        "console": {"host": "hanse.example.org"},
        "bus": {"host": "bus.example.org", "path": "/bus"},
        "store": {"host": "store.example.org"},
    },
    "aggregator": {
        "gpu": {"enabled": True, "runtimeClassName": "nvidia", "nodeSelector": {"gpu": "a100"}},
        "env": {"HANSE_LOG_LEVEL": "debug"},
    },
    "compensator": {"enabled": True},
    "autoscaling": {"enabled": True},
    "priorityClasses": {"create": True},
    "backup": {"enabled": True, "restore": {"from": "newest"}},
    "monitoring": {
        "serviceMonitor": {"enabled": True},
        "podMonitor": {"enabled": True},
        "labels": {"release": "prometheus"},
        "runbookBase": "https://git.example.org/hanse/",
        "natsExporter": {"enabled": True},
        "rules": {"enabled": True},
        "alertsConfigMap": {"enabled": True},
        "otelCollectorConfigMap": {"enabled": True},
        "dashboards": {"enabled": True},
    },
}
FEDERATED: Values = {**EVERYTHING, "nats": {}, "store": {}}
"""Everything, with sites in this cluster."""
PRODUCTION: Values = {
    "nats": {"enabled": False, "publicUrl": "tls://bus.example.org:4222"},
    "externalNats": {"url": "tls://nats-0.bus.svc:4222,tls://nats-1.bus.svc:4222", "caSecret": "bus-ca"},
    "store": {"enabled": False},
    "externalStore": {"url": "https://s3.eu-central-1.example.org", "region": "eu-central-1", "caSecret": "store-ca"},
    "secrets": {"create": False, "names": {"store-coordinator": "s3-of-the-coordinator", "proxy-secret": "ours"}},
    "hub": {"trustedProxies": ["10.244.0.0/16"]},
    "autoscaling": {"enabled": True, "keda": {"enabled": True, "monitoringEndpoint": "nats.bus.svc:8222"}},
    "priorityClassName": "important",
    "backup": {"enabled": True},
    "coordinator": {
        "tolerations": [{"key": "reserved", "operator": "Exists", "effect": "NoSchedule"}],
        "nodeSelector": {"disk": "ssd"},
        "affinity": {"nodeAffinity": {}},
        "podAnnotations": {"team": "research"},
    },
}
FOUND_THERE: Values = {
    "nats": {"enabled": False, "publicUrl": "tls://bus.example.org:4222"},
    "externalNats": {"url": "tls://bus.example.org:4222", "caSecret": "bus-ca", "clientCertSecret": "bus-client"},
    "store": {"enabled": False},
    "externalStore": {
        "url": "https://rook.example.org",
        "keys": {"accessKey": "AWS_ACCESS_KEY_ID", "secretKey": "AWS_SECRET_ACCESS_KEY"},
    },
    "backup": {"enabled": True, "restore": {"from": "newest"}},
    "console": {"enabled": False},
    "compensator": {
        "enabled": True,
        "bus": {"url": "tls://bus.example.org:4222", "caSecret": "bus-ca", "clientCertSecret": "bus-client"},
        "store": {
            "url": "https://rook.example.org",
            "keys": {"accessKey": "AWS_ACCESS_KEY_ID", "secretKey": "AWS_SECRET_ACCESS_KEY"},
        },
    },
}

VALUES: dict[str, dict[str, Values]] = {
    "hanse": {
        "default": {},
        "one-of-each": {
            **{each: {"replicas": 1} for each in ("coordinator", "aggregator", "nats")},
            "tls": {"enabled": False},
            "networkPolicy": {"enabled": False},
            "podDisruptionBudget": {"enabled": False},
            "secrets": {"keep": True},
            "tests": {"enabled": False},
        },
        "everything": EVERYTHING,
        "production": PRODUCTION,
        "found-there": FOUND_THERE,
    },
    "hanse-compensator": {
        "apart": APART,
        "apart-full": {
            **PLACED,
            "image": {
                "registry": "registry.example.org/hanse",
                "digest": f"sha256:{'0' * 64}",
                "pullSecrets": ["pull"],
            },
            "bus": {**APART["bus"], "caSecret": "bus-ca", "clientCertSecret": "bus-client"},
            "store": {**APART["store"], "caSecret": "store-ca"},
            "persistence": {"storageClass": "encrypted", "size": "5Gi", "annotations": {"backup": "no"}},
            "networkPolicy": {"scrapeFrom": [SCRAPER], "bus": {"cidrs": ["192.0.2.0/24"], "peers": [SCRAPER]}},
        },
        "key-and-volume-of-ones-own": {
            **APART,
            "key": {"existingSecret": "sealing-key"},
            "persistence": {"existingClaim": "memory"},
            "serviceAccount": {"create": False, "name": "trustee"},
            "networkPolicy": {"enabled": False},
        },
        "one-of-several": {**APART, "name": "notary", "share": {"enabled": True, "keyHours": 6.5, "keptHours": 48}},
    },
    "hanse-datapod": {
        "least": SITE,
        "token": {**SITE, "join": {"token": "join_0123abc"}},
        "full": {
            **SITE,
            **PLACED,
            "image": {"registry": "registry.example.org/hanse", "tag": "0.1.0", "pullSecrets": ["pull"]},
            "hub": {"url": "https://hub.example.org:8443", "ca": CERTIFICATE},
            "bus": {"clientCertSecret": "bus-client"},
            "join": {"existingSecret": "token-of-the-project", "key": "join"},
            "policy": {"inline": {"minimum_participants": 3, "site_code": {"digests": [CODE_DIGEST]}}},
            "siteCode": {"inline": CODE},
            "data": {**SITE["data"], "test": "/data/ward/test.csv", "kind": "csv"},
            "scratch": {"size": "200Gi", "storageClass": "local-nvme"},
            "networkPolicy": {
                "scrapeFrom": [SCRAPER],
                "dns": {"cidrs": ["169.254.20.10/32"]},
                "egress": [
                    {"ports": [443], "cidrs": ["192.0.2.0/24"]},
                    {"ports": [4222, 8333], "peers": [{"podSelector": {"matchLabels": {"app": "nats"}}}]},
                ],
            },
        },
        "genotypes": {
            **SITE,
            "data": {
                "volumes": [{"name": "cohort", "existingClaim": "genomes", "subPath": "2026"}],
                "genotypes": "/data/cohort/cohort",
                "phenotypes": "/data/cohort/traits.pheno",
                "covariates": "/data/cohort/traits.cov",
            },
            "policy": {"existingConfigMap": "site-policy", "key": "genomes.yaml"},
            "hub": {"url": "https://hub.example.org", "caSecret": "hub-tls"},
            "persistence": {"existingClaim": "home"},
            "serviceAccount": {"create": False},
        },
        "code": {
            **SITE,
            "hub": {"url": "http://hub.hanse:8080", "caConfigMap": "hub-tls"},
            "data": {"kind": "code", "volumes": [{"name": "trial", "configMap": "rows"}]},
            "siteCode": {"existingConfigMap": "site-code", "key": "ward.py"},
            "policy": {"existingConfigMap": "site-policy"},
            "networkPolicy": {"enabled": False},
        },
        "files-on-volumes": {
            **SITE,
            "siteCode": {"existingClaim": "site-files", "key": "ward.py"},
            "policy": {"existingClaim": "site-files", "key": "ward.yaml"},
            "pools": [{"name": "processors", "device": "cpu"}],
        },
        "pools": {
            **SITE,
            **PLACED,
            "poolVolume": {"storageClass": "nfs", "size": "50Gi"},
            "pools": [
                {
                    "name": "a100",
                    "count": 2,
                    "memoryGiB": 80,
                    "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"},
                    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                    "runtimeClassName": "nvidia",
                    "priorityClassName": "gpu",
                    "resources": {"limits": {"memory": "64Gi"}},
                },
                {"name": "slices", "mig": "1g.10gb", "memoryGiB": 10, "replicas": 7, "labels": {"site": "b"}},
                {"name": "amd", "resource": "amd.com/gpu", "image": {"repository": "hanse-datapod-rocm", "tag": "6"}},
                {"name": "processors", "device": "cpu", "replicas": 0, "extraEnv": {"HANSE_LOG_LEVEL": "debug"}},
            ],
        },
    },
}
