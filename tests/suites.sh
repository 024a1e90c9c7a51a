# The suites of other languages and of generated clients, sourced by tests/run and tests/languages. A suite has a name, its
# tests by the begins of their names, the paths that it depends on, and a Rust package to build first, if it has one.
suites=()
declare -A suite_tests suite_inputs suite_package
suite() {
    suites+=("$1")
    suite_tests[$1]=$2 suite_inputs[$1]="$3 $EACH" suite_package[$1]=${4-}
}

# Each suite depends on these.
readonly EACH="tests/languages tests/steps.sh tests/suites.sh tests/prepare tests/requirements.txt tests/constraints \
tests/support crates/testbed Cargo.lock"
readonly REST="openapi src/api src/server crates/core"
readonly SQS="src/api src/server crates/core"

suite openapi-python \
    "sdk::python_client_of_openapi_generator_ sdk::client_of_openapi_python_client_" "tests/sdk $REST"
suite openapi-go "sdk::go_client_of_openapi_generator_" "tests/sdk $REST"
suite openapi-typescript "sdk::typescript_clients_" "tests/sdk $REST"
suite openapi-rust "sdk::generated_rust_client_" "tests/sdk $REST" tests/sdk/rust
suite schemathesis "sdk::schemathesis_" "tests/sdk $REST"
suite openstack "clients::" "tests/clients src/keystone $REST"
# Most promises of SQS are tested with boto3 alone, so each part of the service counts.
suite boto3 "sqs::boto3_finds_ sqs::boto3_has_ sqs::boto3_legacy_ sqs::boto3_sees_ sqs::boto3_standard_ \
sqs::boto3_works_ sqs::bounds_are_ sqs::deadlines_are_ sqs::policies_allow_ sqs::requests_are_signed_" \
    "tests/sqs src crates Cargo.toml"
suite boto3-query "sqs::boto3_of_the_query_protocol_" "tests/sqs $SQS"
suite aws-cli "sqs::the_cli_of_aws_" "tests/sqs $SQS"
suite sqs-javascript "sqs::the_javascript_sdk_" "tests/sqs $SQS"
suite sqs-rust "sqs::the_sdk_for_rust_" "tests/sqs $SQS" tests/sqs/rust
suite celery "sqs::celery_" "tests/sqs $SQS"
suite sqs-replicas "sqs::cluster::clients_cannot_tell_" "tests/sqs crates/cluster $SQS" tests/sqs/rust
suite examples "docs::shell::examples_ docs::shell::blocks_of_the_generated_clients_" \
    "examples docs/guide/clients.md tests/docs $REST" examples/worker-rust
suite cats "docs::shell::killed_cats_" "examples/cats tests/docs src crates Cargo.toml"

# Whether an input of a suite differs from that of a revision.
has_changed() {
    local inputs
    read -ra inputs <<<"${suite_inputs[$2]}"
    ! git diff --quiet "$1" -- "${inputs[@]}" || [ -n "$(git ls-files --others --exclude-standard -- "${inputs[@]}")" ]
}

# Prints the suites whose inputs have changed since a revision.
changed_suites() {
    local name
    git rev-parse --quiet --verify "$1^{commit}" >/dev/null || fail "$1 is no revision of this repository"
    for name in "${suites[@]}"; do
        ! has_changed "$1" "$name" || echo "$name"
    done
}

# Prints the revision since which a change counts: where this one left the main branch, or the given one. Nothing if this
# revision is on it already, or the history is missing: then everything runs.
left_at() {
    local main fork
    for main in ${1:-main origin/main}; do
        fork=$(git merge-base "$main" HEAD 2>/dev/null) || continue
        [ "$fork" = "$(git rev-parse HEAD)" ] || echo "$fork"
        return
    done
}

# Builds the Rust packages of these suites, each once.
build_packages() {
    local package
    for package in $(for name in "$@"; do echo "${suite_package[$name]}"; done | sort -u); do
        build_package "$package"
    done
}
