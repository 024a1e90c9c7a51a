# What the scripts of this folder and .ci/run share. They source it, and run from the root of the repository.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ -n "$(command -v cargo)" ] || PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

# A script that another one starts counts from the begin of that one.
export ANGARIUM_STEPS_BEGAN="${ANGARIUM_STEPS_BEGAN:-$EPOCHSECONDS}"
say() { printf '\n== %s (at %d s)\n' "$*" "$((EPOCHSECONDS - ANGARIUM_STEPS_BEGAN))"; }
fail() {
    printf '%s: %s\n' "$0" "$*" >&2
    exit 2
}

# Each step is a process group of its own, so that its end is the end of all that it started.
process_groups=()
end_process_groups() {
    local group
    for group in "${!process_groups[@]}"; do
        kill -KILL -- "-$group" 2>/dev/null || true
    done
}
trap end_process_groups EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Starts a step. Its process group is in $begun.
begin() {
    set -m
    "$@" </dev/null &
    begun=$!
    set +m
    process_groups[begun]=1
}

# Waits for the step of this process group, and returns its status.
finish() {
    local status=0
    wait "$1" || status=$?
    kill -KILL -- "-$1" 2>/dev/null || true
    unset "process_groups[$1]"
    return "$status"
}

run() {
    begin "$@"
    finish "$begun"
}

# Builds a package of the tests that is not in the workspace. All of them share what they depend on.
build_package() { cargo build --locked --manifest-path "$1/Cargo.toml" --target-dir target/rust-clients; }
