# The usual verbs. `just` lists them; each is a line that also works without just.

# list the verbs
default:
    @just --list

# run the service
run *args:
    cargo run --release -- {{args}}

# install what the tests need
prepare:
    tests/prepare

# check form and lints
check:
    cargo fmt --check
    cargo clippy --locked --workspace --all-targets -- -D warnings

# run one part of the tests, such as http:: or tidy::
test part="":
    ANGARIUM_TEST_TOOLS="$PWD/target/test-tools" cargo test --locked --test it {{part}}

# run every test
all:
    tests/run

# run suites of other languages and of generated clients: all, some, or those with changes (--since main)
languages *suites:
    tests/languages {{suites}}

# run form, lints and the tests, without the suites of other languages that a branch leaves unchanged
ci:
    .ci/run

# run the tests of attacks, damage and broken networks against a release build
release:
    tests/release

# simulate whole clusters from seeds, such as --seeds 10000 --minutes 10
simulate *args:
    tests/simulation {{args}}

# kill the service under load, so many rounds
crash rounds="100":
    tests/crash {{rounds}}

# refresh what the program prints: the OpenAPI documents and the pages of docs/reference
docs:
    cargo build --bin angarium
    target/debug/angarium openapi > openapi/angarium.json
    target/debug/angarium openapi --version 3.0 > openapi/angarium-3.0.json
    for page in settings limits errors commands; do target/debug/angarium docs $page > docs/reference/$page.md; done

# build the book into target/book (cargo install mdbook)
book:
    mdbook build

# measure posts beside an empty handler
bench *args:
    cargo run --release -- bench post {{args}}

# start a whole cluster on this machine
cluster:
    docker/dev
