#!/bin/sh
# Run by mmdebstrap with the root folder: unpacks the cloud kernel beside it, not into it, so that
# none of the kernel's installation scripts run. The package source is the machine's own.
set -eu
root=$1
export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
meta=linux-image-cloud-$(dpkg --print-architecture)
package=$(apt-cache depends "$meta" | sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -n 1)
cd "$root/boot"
apt-get -q download "$package"
dpkg-deb -x "$package"_*.deb unpacked
rm -f -- "$package"_*.deb
mv -- "unpacked/boot/vmlinuz-${package#linux-image-}" vmlinuz
mkdir -p "$root/usr/lib/modules"
mv -- "unpacked/lib/modules/${package#linux-image-}" "$root/usr/lib/modules/"
rm -r -- unpacked
chroot "$root" depmod "${package#linux-image-}"
