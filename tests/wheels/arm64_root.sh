#!/usr/bin/env bash
# Unpacks Debian's Python for arm64 into a folder, for `python -m tests.wheels FOLDER --aarch64 ROOT` under qemu-aarch64.
# Nothing is installed, and apt's lists of this machine stay as they are. Needs Debian's apt-get and dpkg-deb.
set -euo pipefail
root=${1:?name the folder to make} suite=${2:-bookworm}
mkdir -p "$root"
root=$(cd "$root" && pwd)
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$state/debs" "$state/parts"
touch "$state/status"
echo "deb [arch=arm64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main" >"$state/sources.list"
apt=(apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$state" -o Dir::State::lists="$state/lists"
    -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache" -o Dir::Etc::sourcelist="$state/sources.list"
    -o Dir::Etc::sourceparts="$state/parts" -o APT::Sandbox::User=root -o Debug::NoLocking=1)
"${apt[@]}" update
"${apt[@]}" install -y --no-install-recommends --download-only python3 libstdc++6
for deb in "$state"/cache/archives/*.deb; do
    dpkg-deb -x "$deb" "$root"
done
# Links to absolute paths would lead out of the folder.
find "$root" -type l -lname '/*' | while read -r link; do
    ln -sfn "$root$(readlink "$link")" "$link"
done
echo "$root holds $("$root/usr/bin/python3" --version 2>/dev/null || echo 'Python for arm64')"
