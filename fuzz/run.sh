#!/usr/bin/env bash
# Builds the fuzz targets and runs them:  fuzz/run.sh quick | run TARGET [libFuzzer options or an input] | corpus | lint
# Needs the workspace's own toolchain and a C++ compiler for libFuzzer (g++ or clang++); neither nightly Rust nor cargo-fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v "${CXX:-c++}" >/dev/null || { echo "a C++ compiler is needed for libFuzzer: install g++ or clang, or name yours in CXX"; exit 1; }
HOST=$(rustc -vV | sed -n 's/^host: //p')
# The folder of the product, whose build scripts and macros are taken as they are; what is instrumented stands below the name of the host.
export CARGO_TARGET_DIR=${FUZZ_TARGET_DIR:-$PWD/target}
# What `cargo fuzz build --sanitizer none` passes on stable Rust, less the tracing of comparisons: the corpus knows all magic numbers. The host
# is named as the target so that build scripts and macros are not instrumented.
PLAIN="--cfg fuzzing"
export RUSTFLAGS="$PLAIN -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table ${FUZZ_RUSTFLAGS:-}"
BIN=$CARGO_TARGET_DIR/$HOST/fast
# Corpora and logs.
WORK=$CARGO_TARGET_DIR/fuzz
# Seconds a target, megabytes of a process, seconds of one input.
SECONDS_EACH=${FUZZ_SECONDS:-10}
LIMITS=(-rss_limit_mb=2048 -timeout=20 -print_final_stats=1)

# Buffers of megabytes come back from the allocator instead of from the kernel, page by page.
export MALLOC_MMAP_THRESHOLD_=$((1 << 30)) MALLOC_TRIM_THRESHOLD_=$((1 << 30))

# Scripts are short; longer ones only take longer.
options() {
	case $1 in frame | ckks | plan) ;; *) echo -max_len=256 ;; esac
	# Some of their inputs take a thousand times as long as others.
	case $1 in ot | two_party_*) echo -entropic_scale_per_exec_time=1 ;; esac
}

targets() { for f in fuzz/fuzz_targets/*.rs; do basename "$f" .rs; done; }

# Clippy's driver compiles them, and warnings are errors, so that no second pass reads all dependencies for this instrumentation. It is called for
# this workspace's own package alone.
build() {
	echo "== build the fuzz targets"
	local start=$SECONDS driver
	driver=$(rustc --print sysroot)/bin/clippy-driver
	if [ -x "$driver" ]; then
		export RUSTC_WORKSPACE_WRAPPER=$driver CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
	else echo "== no clippy beside rustc: the targets are not checked for warnings"; fi
	cargo build -q --manifest-path fuzz/Cargo.toml --profile fast --target "$HOST" --bins --locked
	echo "built in $((SECONDS - start)) s"
}

# One target for a short time, on a corpus of its own beside the seeds: one line; fails unless inputs beyond the seeds were run.
quick() {
	local name=$1 seeds work log runs status=0
	seeds=$({ find "fuzz/corpus/$name" -type f 2>/dev/null || true; } | wc -l)
	[ "$seeds" -gt 0 ] || { echo "$name: no corpus in fuzz/corpus/$name; write it with 'make fuzz-corpus'"; return 1; }
	[ -x "$BIN/$name" ] || { echo "$name: fuzz/Cargo.toml has no program of this name"; return 1; }
	work=$WORK/quick/$name
	rm -rf "$work" && mkdir -p "$work/corpus"
	log=$work/log
	"$BIN/$name" "${LIMITS[@]}" $(options "$name") -max_total_time="$SECONDS_EACH" -artifact_prefix="$work/" "$work/corpus" "fuzz/corpus/$name" >"$log" 2>&1 || status=$?
	runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
	if [ "$status" -ne 0 ]; then
		tail -40 "$log"
		echo "$name: failed after ${runs:-0} executions; the input is in $work"
		return 1
	fi
	[ "${runs:-0}" -gt "$seeds" ] || { echo "$name: ${runs:-0} executions of $seeds seeds: nothing was fuzzed"; return 1; }
	echo "$name: $runs executions, $(grep -oE 'cov: [0-9]+' "$log" | tail -1 | cut -d' ' -f2) edges, $seeds seeds"
}

case ${1:-} in
quick)
	build
	# As many at a time as there are cores.
	failed=0 running=0
	for name in $(targets); do
		if [ "$running" -ge "$(nproc)" ]; then
			wait -n || failed=1
			running=$((running - 1))
		fi
		quick "$name" &
		running=$((running + 1))
	done
	for ((; running > 0; running--)); do wait -n || failed=1; done
	[ "$failed" -eq 0 ] || { echo "fuzz-quick: failed"; exit 1; }
	;;
run)
	build
	name=${2:?a target, one of: $(targets | tr '\n' ' ')}
	shift 2
	# An input that is named is run alone.
	for word in "$@"; do
		if [ -f "$word" ]; then exec "$BIN/$name" "${LIMITS[@]}" "$@"; fi
	done
	mkdir -p "$WORK/corpus/$name"
	exec "$BIN/$name" "${LIMITS[@]}" $(options "$name") "$@" -artifact_prefix="$WORK/$name-" "$WORK/corpus/$name" "fuzz/corpus/$name"
	;;
lint)
	RUSTFLAGS=$PLAIN cargo clippy --manifest-path fuzz/Cargo.toml --profile fast --target "$HOST" --locked -- -D warnings
	;;
corpus)
	build
	for name in $(targets); do
		rm -rf "fuzz/corpus/$name"
		HUSHNET_FUZZ_SEEDS=fuzz/corpus/$name "$BIN/$name" >/dev/null
		echo "$name: $(find "fuzz/corpus/$name" -type f | wc -l) seeds"
	done
	;;
*)
	sed -n 2,3p "$0"
	exit 2
	;;
esac
