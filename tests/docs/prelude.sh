# The shell in which the blocks of a page run, in a folder of their own: a service goes on in the background once it listens,
# an answer of 400 and more is a failure, and tools are those of the tests. The script ends all that it started, also when the
# test dies, whose end of stdin it holds.
set -euo pipefail
exec 3<&0 </dev/null
{ read -r _ <&3 || true; kill -KILL 0; } >/dev/null 2>&1 &
servers=($!)
trap 'kill -KILL "${servers[@]}" 2>/dev/null || true' EXIT

angarium() {
    [ "${1-}" = serve ] || { command angarium "$@"; return; }
    local log="serve-${#servers[@]}.log" try
    command angarium "$@" >"$log" 2>&1 3<&- &
    servers+=($!)
    for try in $(seq 600); do
        ! grep -q 'listening on ' "$log" || return 0
        kill -0 $! 2>/dev/null || break
        sleep 0.1
    done
    cat "$log" >&2
    return 1
}

# Ends the services that run.
stop() {
    local server
    for server in "${servers[@]:1}"; do
        kill -TERM "$server"
        wait "$server" || true
    done
    servers=("${servers[0]}")
}

curl() {
    local status=0
    command curl --silent --show-error --fail-with-body --max-time 60 "$@" || status=$?
    [ "$status" = 0 ] && return
    [ "$status" = 22 ] && [ -n "${MAY_BE_REFUSED-}" ] && [[ "$*" =~ $MAY_BE_REFUSED ]] && return
    echo "curl $*: $status" >&2
    return "$status"
}

# What tests/prepare has installed.
pip() { [ "$1" = install ]; }
npx() {
    local arguments=() word
    for word in "${@:2}"; do
        case "$word" in
            */* | *.json | client) arguments+=("$PWD/$word") ;;
            *) arguments+=("$word") ;;
        esac
    done
    case "$1" in
        tsc) node "$TOOLS/node_modules/typescript/bin/tsc" "${@:2}" ;;
        # It looks for its TypeScript where it runs, and needs a newer Node.js.
        @hey-api/openapi-ts) (cd "$TOOLS/hey-api" && node_modules/.bin/node "node_modules/$1/bin/run.js" "${arguments[@]}") ;;
        *) return 1 ;;
    esac
}
openapi-python-client() {
    PYTHONPATH=$TOOLS/openapi-python-client PATH=$TOOLS/openapi-python-client/bin:$PATH python3 -m openapi_python_client "$@"
}
celery() {
    local run=(env "PYTHONPATH=$TOOLS/celery:$HOUSE/examples" python3 -m celery "$@")
    # In the background it is the job itself, so that a signal reaches it.
    [ "$BASHPID" = "$$" ] || exec "${run[@]}"
    "${run[@]}"
}
go() { GOCACHE=$HOUSE/target/go-cache GOPATH=$PWD/go GOPROXY=off GOTOOLCHAIN=local CGO_ENABLED=0 "$TOOLS/go/go/bin/go" "$@"; }
cargo() {
    # The compiler is beside it. What was built is kept between runs.
    CARGO_HOME=$RUST_HOME CARGO_TARGET_DIR=$HOUSE/target/rust-clients PATH=${CARGO_PROGRAM%/*}:$PATH "$CARGO_PROGRAM" "$@"
}
