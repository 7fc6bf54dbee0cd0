#!/bin/sh
# What cargo calls in front of rustc for `make test-rust`: programs of tests are built without optimisation, in a third of the time. The libraries
# that they link are those of `make setup`; no profile can tell the two apart. Programs with kernels or long loops of their own, and what counts processor time,
# keep a first level: they would lose more when they run. Assertions for debugging are off, as in the profile.
# Where HUSHNET_CLIPPY_DRIVER names clippy's driver, it compiles these programs, and the ring with the ledger, and warnings are errors (`make lint-rust`
# reads the rest). It is a compiler that lints; what it makes is nothing that a product or a clocked library holds.
level=0
name=
lint=
for word; do
	case $name$word in --crate-namehushnet_matmul | --crate-namehushnet_ring | --crate-namehushnet_rlwe) level=1 ;; esac
	case $name$word in '--cfgfeature="ledger"') lint=$HUSHNET_CLIPPY_DRIVER ;; esac
	case $name$word in --crate-nameall | --crate-namehostile_plans | --crate-namemasks | --crate-namepaths | --crate-namesecurity_sets) level=1 ;; esac
	name=$word
done
case " $* " in
*" --test "*)
	lint=$HUSHNET_CLIPPY_DRIVER
	set -- "$@" -C opt-level=$level -C debug-assertions=off -C overflow-checks=off
	;;
esac
[ -z "$lint" ] || export CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
exec ${RUSTC_WRAPPER_INSIDE:+"$RUSTC_WRAPPER_INSIDE"} ${lint:+"$lint"} "$@"
