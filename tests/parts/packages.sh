#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# packages.sh SOURCE BUILD - Debian packages and a tarball of a build, twice: the same bytes; what is in them; the unpacked
# program runs.
set -eu
source=$1 build=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp -r "$source/tools" "$source/CMakeLists.txt" "$folder" # a checkout of its own: the script writes into build/package
export SOURCE_DATE_EPOCH=1700000000
products() { cksum "$build/proa" "$build"/libproa.a "$build"/libproa.so.*.*.*; }
products >"$folder/products"
for time in 1 2; do
    BUILD=$build FAST=1 "$folder/tools/package" deb tarball >"$folder/log" 2>&1 || { cat "$folder/log" && exit 1; }
    mv "$folder/build/package/SHA256SUMS" "$folder/sums$time"
    sleep 1.1 # times of files have whole seconds
done
if ! products | cmp -s - "$folder/products"; then
    echo "$build was built anew while it was packed: another run shares it" && exit 1
fi
diff "$folder/sums1" "$folder/sums2" # names the packages that differ
cd "$folder/build/package"
has() {
    dpkg-deb -c "$1" >"$folder/list"
    grep -qE "$2" "$folder/list" || { echo "$1 has no $2" && exit 1; }
}
has_not() { if dpkg-deb -c "$1" | grep -E "$2"; then echo "$1 has $2" && exit 1; fi; }
has proa_*.deb ' \./usr/bin/proa$'
has proa_*.deb 'doc/proa/proa\.spdx\.json$'
has proa_*.deb 'share/man/man1/proa\.1\.gz$'
has proa_*.deb 'share/man/man1/proa-serve\.1\.gz$'
has_not proa_*.deb 'libproa\.'
for package in proa libproa0.1 libproa-dev; do
    has ${package}_*.deb "doc/$package/copyright$"
    has ${package}_*.deb "doc/$package/changelog\.gz$"
done
# The maintainer's address is for whoever publishes the packages to set.
if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog -- *.deb
fi
has libproa0.1_*.deb 'libproa\.so\.0\.1 -> '
has_not libproa0.1_*.deb '/usr/include|/usr/bin'
has libproa-dev_*.deb ' \./usr/include/proa/hub\.h$'
has libproa-dev_*.deb 'cmake/proa/proa-config\.cmake$'
has libproa-dev_*.deb 'libproa\.so -> '
dpkg-deb -f libproa-dev_*.deb Depends | grep -q 'libproa0\.1 (= '
dpkg-deb -f proa_*.deb Depends | grep -q libevent
mkdir "$folder/here" && tar -C "$folder/here" -xzf proa-*.tar.gz
mv "$folder"/here/proa-* "$folder/moved"
python3 -c 'import json, sys
packages = json.load(open(sys.argv[1]))["packages"]
assert all(p["versionInfo"] != "NOASSERTION" and p["licenseDeclared"] for p in packages), packages' \
    "$folder/moved/share/doc/proa/proa.spdx.json"
ldd "$folder/moved/bin/proa" | grep "libjson-c.so.5 => $folder/moved/"
"$folder/moved/bin/proa" version
echo "packages are right"
