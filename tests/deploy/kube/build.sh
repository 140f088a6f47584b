#!/usr/bin/env bash
# Builds the servers of a real Kubernetes (1.20.2) without a download from outside Debian: its source package carries the
# whole vendored tree. Once a machine: about 8 minutes on 2 cores, 2.4 GB of scratch that may be deleted afterwards.
# usage: build.sh SCRATCH TARGET        TARGET gets kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy
set -euo pipefail
[ $# = 2 ] || { sed -n 's/^# usage: //p' "$0" >&2; exit 2; }
mkdir -p "$1" "$2"
scratch=$(cd "$1" && pwd) target=$(cd "$2" && pwd)
version=1.20.2 module=k8s.io/kubernetes
cd "$scratch"

# 1. Source, compiler and one newer dependency, through an apt configuration of our own: deb-src is off on most machines.
mkdir -p apt/sources apt/lists/partial apt/cache/archives/partial toolchain
sed 's/^Types:.*/Types: deb deb-src/' /etc/apt/sources.list.d/debian.sources > apt/sources/debian.sources
apt=(-qq -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$scratch/apt/sources" -o "Dir::State::lists=$scratch/apt/lists"
     -o "Dir::Cache=$scratch/apt/cache" -o APT::Sandbox::User=root)
apt-get "${apt[@]}" update
apt-get "${apt[@]}" source --download-only kubernetes
apt-get "${apt[@]}" download golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev
for package in ./*.deb; do dpkg-deb -x "$package" toolchain; done

# 2. The tree with Debian's patches. The vendored reflect2 1.0.1 is older than the compiler's changes to maps.
rm -rf tree && mkdir tree
tar xzf kubernetes_*.orig.tar.gz -C tree --strip-components 1
tar xJf kubernetes_*.debian.tar.xz -C tree
cd tree
while read -r name; do patch -s -p1 < "debian/patches/$name"; done < debian/patches/series
reflect=vendor/github.com/modern-go/reflect2
rm -f $reflect/*.go $reflect/*.s
cp "$scratch"/toolchain/usr/share/gocode/src/github.com/modern-go/reflect2/*.{go,s} $reflect/

# 3. A GOPATH build, offline.
export GOROOT=$scratch/toolchain/usr/lib/go-1.19 GOPATH=$scratch/gopath GOCACHE=$scratch/gocache
export GO111MODULE=off GOPROXY=off GOTOOLCHAIN=local GOFLAGS='' CGO_ENABLED=0 PATH=$GOROOT/bin:$PATH
mkdir -p "$GOPATH/src/k8s.io" && ln -sfn "$scratch/tree" "$GOPATH/src/$module"
cd "$GOPATH/src/$module"

# The API server serves an OpenAPI description that is generated from the types, and does not compile without it.
go build -o "$scratch/openapi-gen" $module/vendor/k8s.io/kube-openapi/cmd/openapi-gen
marked() { grep -rl --include='*.go' '+k8s:openapi-gen=' "$@" | xargs -n1 dirname; }
inputs=$( { marked pkg cmd plugin; marked staging/src/k8s.io | sed 's#^staging/src/#vendor/#'; } \
  | grep -vE 'vendor/k8s.io/(code-generator|sample-apiserver)|/testdata|/test/' | LC_ALL=C sort -u | sed "s#^#$module/#" | paste -sd,)
"$scratch/openapi-gen" --v 0 --logtostderr -i "$inputs" -p $module/pkg/generated/openapi -O zz_generated.openapi \
  -h hack/boilerplate/boilerplate.generatego.txt -r "$scratch/violations" --output-base "$GOPATH/src"

stamp=""
for package in client-go/pkg/version component-base/version; do
  for field in gitVersion=v$version gitMajor=1 gitMinor=20 gitTreeState=archive; do stamp+=" -X $module/vendor/k8s.io/$package.$field"; done
done
for server in kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy; do
  go build -ldflags "-s -w$stamp" -o "$target/$server" "$module/cmd/$server"
  echo "$target/$server"
done
