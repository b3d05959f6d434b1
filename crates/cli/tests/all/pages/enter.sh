# Runs a stage where the paths, users and hosts of the pages are real: a root of its own in memory, with the machine's programs in it,
# a network of its own, and no process of the machine. `$1` is a folder for that root, `$2` the checkout, `$3` the folder of posthaste and the
# other programs that were built, `$4` the S3 server, and the stage's script follows.
set -eu
root=$1
ip link set lo up
# Addresses of documentation, and one of a private network that a page names.
for address in 192.0.2.7 192.0.2.9 192.0.2.10 10.2.0.9; do ip address add "$address/32" dev lo; done
mount -t tmpfs -o mode=755 none "$root"
for folder in usr opt; do
    mkdir "$root/$folder"
    mount --rbind "/$folder" "$root/$folder"
done
for link in bin sbin lib lib32 lib64; do
    [ ! -e "/$link" ] || if [ -L "/$link" ]; then cp -P "/$link" "$root/$link"; else
        mkdir "$root/$link"
        mount --rbind "/$link" "$root/$link"
    fi
done
for folder in dev sys; do
    mkdir "$root/$folder"
    mount --rbind "/$folder" "$root/$folder"
done
mkdir "$root/proc" "$root/run" "$root/run/sshd" "$root/var" "$root/var/lib" "$root/var/log" "$root/root"
mount -t proc none "$root/proc"
mkdir -m 1777 "$root/tmp"
cp -a /etc "$root/etc"
for folder in "$2" "$3" "${4%/*}"; do
    mkdir -p "$root$folder"
    mount --bind "$folder" "$root$folder"
done
cp "$5" "$root/stage.sh"
exec chroot "$root" /usr/bin/env -i -C / HOME=/root PATH="$3:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" LC_ALL=C.UTF-8 \
    CHECKOUT="$2" S3_SERVER="$4" bash /stage.sh
