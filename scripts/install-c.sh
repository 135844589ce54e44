#!/bin/sh
# scripts/install-c.sh FOLDER
#
# Installs the C library from FOLDER, where Cargo has built it, under its versioned names, with its
# header and its pkg-config file. PREFIX defaults to /usr/local, and LIBDIR to lib below it.
# DESTDIR, for packagers, is put before all paths, but is written into no file.
set -eu

folder=$1
prefix=${PREFIX:-/usr/local} libdir=${LIBDIR:-lib}
crate=$(dirname "$0")/../crates/tollgate-c
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$crate/Cargo.toml")
# The same soname as in build.rs: until 1.0, a minor version may break programs.
soname=libtollgate.so.${version%.*}

case $prefix in
/*) ;;
*)
	echo "PREFIX is $prefix; allowed: a path that begins with /"
	exit 1
	;;
esac

to=${DESTDIR:-}$prefix
install -d "$to/include" "$to/$libdir/pkgconfig"
install -m 644 "$crate/include/tollgate.h" "$to/include"
install -m 644 "$folder/libtollgate_c.a" "$to/$libdir/libtollgate.a"
install -m 755 "$folder/libtollgate_c.so" "$to/$libdir/libtollgate.so.$version"
ln -sf "libtollgate.so.$version" "$to/$libdir/$soname"
ln -sf "$soname" "$to/$libdir/libtollgate.so"
sed "s|@PREFIX@|$prefix|; s|@LIBDIR@|$libdir|; s|@VERSION@|$version|" "$crate/tollgate.pc.in" \
	> "$to/$libdir/pkgconfig/tollgate.pc"
echo "Installed tollgate $version: $to/include/tollgate.h, $to/$libdir/libtollgate.so, libtollgate.a"
