#!/bin/sh
# What cargo calls in front of rustc for `make test-rust`: programs of tests are built without optimisation, in a third of the time. The libraries
# that they link are those of `make setup`; no profile can tell the two apart. Programs with kernels or long loops of their own, and what counts processor time,
# keep a first level: they would lose more when they run. Assertions for debugging are off, as in the profile.
level=0
name=
for word; do
	case $name$word in --crate-namehushnet_matmul | --crate-namehushnet_ring | --crate-namehushnet_rlwe) level=1 ;; esac
	case $name$word in --crate-nameall | --crate-namehostile_plans | --crate-namepaths | --crate-namesecurity_sets) level=1 ;; esac
	name=$word
done
case " $* " in
*" --test "*) exec ${RUSTC_WRAPPER_INSIDE:+"$RUSTC_WRAPPER_INSIDE"} "$@" -C opt-level=$level -C debug-assertions=off -C overflow-checks=off ;;
*) exec ${RUSTC_WRAPPER_INSIDE:+"$RUSTC_WRAPPER_INSIDE"} "$@" ;;
esac
