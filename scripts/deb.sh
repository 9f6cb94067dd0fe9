#!/usr/bin/env bash
# deb.sh ROOT makes ROOT/../ckvc_VERSION_ARCHITECTURE.deb of what `make install DESTDIR=ROOT PREFIX=/usr` has put there. All times are
# SOURCE_DATE_EPOCH's, so that the same files give the same bytes. DEBEMAIL names who made the package.
set -euo pipefail
shopt -s inherit_errexit
root=$(realpath "$1")
version=$("$root/usr/bin/ckvc" --version | cut -d ' ' -f 2)
architecture=$(dpkg --print-architecture)
maintainer="the ckvc authors <${DEBEMAIL:-ckvc@packages.invalid}>"
doc=$root/usr/share/doc/ckvc
command -v dpkg-shlibdeps >/dev/null || { echo "deb: dpkg-shlibdeps is missing: apt-get install -y --no-install-recommends dpkg-dev" >&2; exit 69; }

mapfile -t shared < <(find "$root/usr/lib" -name '*.so*' -type f)
strip --strip-unneeded "$root/usr/bin/ckvc" "${shared[@]}"
find "$root/usr/lib" -name '*.a' -exec strip --strip-debug --enable-deterministic-archives {} +
mkdir -p "$doc" "$root/usr/share/lintian/overrides" "$root/DEBIAN"
mv "$root/usr/share/zsh/site-functions" "$root/usr/share/zsh/vendor-completions" # where Debian's zsh looks
{ printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\nCopyright: 2026 the ckvc authors\nLicense: Expat\n'
    sed -n '5,$s/^$/./; 5,$s/^/ /p' LICENSE
    printf '\nFiles: usr/share/ckvc/default-texts/*\nCopyright: their authors, whom usr/share/ckvc/default-texts/NOTICE names\nLicense: free-texts\n'
    printf ' Each is in the public domain or under MIT, BSD-3-Clause, PSF or CC-BY-4.0, as NOTICE says in full.\n'; } >"$doc/copyright"
gzip -9n <NEWS.md >"$doc/NEWS.md.gz"
printf 'ckvc (%s) unstable; urgency=medium\n\n  * NEWS.md.gz says what is new.\n\n -- %s  %s\n' \
    "$version" "$maintainer" "$(date -R -u -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.gz"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/debian"
echo 'Source: ckvc' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O "$root/usr/bin/ckvc" "${shared[@]}" | sed -n 's/^shlibs:Depends=//p')
cat >"$root/DEBIAN/control" <<EOF
Package: ckvc
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Section: science
Priority: optional
Installed-Size: $(du -sk --apparent-size --exclude=DEBIAN "$root" | cut -f 1)
Depends: $depends, python3
Suggests: python3-numpy
Description: compiler of KV-cache eviction policies
 Makes, from some dozens of prompts and offline, a table that says how much of
 its cache each KV head of a language model needs and what is worth keeping
 there. With the library for engines that read such tables (C, and Python below
 share/ckvc/python).
EOF
# Program, library and header are released together, in one package; engines link the library statically or bring it along.
soname=$(objdump -p "${shared[@]}" | awk '/SONAME/ { print $2 }')
if [ -n "$soname" ]; then
    printf 'ckvc: package-name-doesnt-match-sonames\nckvc: link-to-shared-library-in-wrong-package\n' >"$root/usr/share/lintian/overrides/ckvc"
    echo "${soname/.so./ } ckvc (>= $version)" >"$root/DEBIAN/shlibs"
    echo 'activate-noawait ldconfig' >"$root/DEBIAN/triggers"
fi
(cd "$root" && find usr -type f | LC_ALL=C sort | xargs md5sum) >"$root/DEBIAN/md5sums"
chmod -R u=rwX,go=rX "$root"
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group -Zxz -z0 --threads-max=1 --build "$root" "$(dirname "$root")" # more threads are other bytes
