//! What holds in this house, as plain data. Paths are below `src/`, modules are written as in Rust; a row holds for all
//! that is below its path, and the longest path wins. A row that is wrong is changed in a commit of its own.

/// Which parts a part may name. Itself is always allowed.
pub const IMPORTS: &[(&str, &[&str])] = &[
    ("lib.rs", &[]),
    ("main.rs", &["cli"]),
    ("cli", &["api::openapi", "config", "domain::time", "server", "telemetry", "units"]),
    // From outside only, so that it can drive any server that speaks the API.
    ("cli/bench", &["units"]),
    // What is documented: settings, bounds, errors.
    ("cli/docs", &["api::error_table", "config", "domain::limits", "units"]),
    ("cli/token.rs", &["config", "domain"]),
    ("cli/client", &["spelling", "units"]),
    ("config", &["domain", "files", "spelling", "units"]),
    // What anybody may read.
    ("files.rs", &[]),
    // A store that no service has open is read where it lies.
    ("cli/client/doctor/store.rs", &["coordination", "journal", "storage"]),
    // Of coordination only the address of an ensemble, of placement the name of an algorithm: both are settings. Of
    // domain the defaults.
    ("config.rs", &["coordination::zookeeper", "domain::limits", "placement", "units"]),
    ("telemetry.rs", &["config"]),
    ("spelling.rs", &[]),
    ("units.rs", &[]),
    // The composition root knows the layers below it; what it is composed of does not.
    (
        "server/mod.rs",
        &[
            "api",
            "broker",
            "catalogue",
            "clock",
            "cluster",
            "config",
            "coordination",
            "domain",
            "error",
            "journal",
            "metrics",
            "placement",
            "storage",
            "telemetry",
        ],
    ),
    ("server/face.rs", &["api", "clock", "config", "domain", "keystone"]),
    ("server/peers.rs", &["config", "domain"]),
    ("server/tree.rs", &["catalogue", "clock", "config", "coordination", "journal"]),
    ("server", &["budget", "domain", "error", "metrics"]),
    // Certificates are files.
    ("server/tls.rs", &["files"]),
    ("budget.rs", &[]),
    ("budget", &[]),
    ("api", &["broker", "domain", "error", "metrics"]),
    // The one place that asks Keystone.
    ("api/credentials.rs", &["domain", "error", "keystone", "metrics"]),
    ("api/bodies.rs", &["budget", "domain", "error"]),
    // Of the clock only the handle: rates are by the second.
    ("api/mod.rs", &["broker", "clock", "domain", "metrics"]),
    ("api/admission.rs", &["clock", "domain", "error"]),
    // The clock judges dates of signatures. Of the errors the one that REST gives callers of the same projects.
    ("api/sqs/endpoint.rs", &["broker", "clock", "domain", "error", "metrics"]),
    // Of the cluster only the way to the other replicas: where a queue is served is the broker's to say.
    ("api/forward", &["broker", "cluster::peers", "cluster::peer_client", "domain", "error", "metrics"]),
    ("api/peer.rs", &["broker", "cluster::peer_client", "error"]),
    (
        "broker",
        &["catalogue", "clock", "cluster", "domain", "engine", "error", "metrics", "placement", "storage"],
    ),
    // What is recorded of the time is the clock's to say.
    ("catalogue/time.rs", &["clock", "coordination", "domain", "error"]),
    ("catalogue", &["coordination", "domain", "error"]),
    ("cluster", &["catalogue", "domain", "error", "placement"]),
    ("placement", &[]),
    ("engine", &["domain", "error"]),
    // Certificates and secrets are files. The clock judges when tokens expire.
    ("keystone", &["clock", "domain", "files", "metrics"]),
    // Names of queues, and bounds.
    ("metrics", &["domain"]),
    ("storage", &["domain", "error"]),
    ("storage/embedded", &["domain", "error", "journal"]),
    // Of the clock only its test.
    ("storage/embedded/audit.rs", &["clock", "domain", "journal"]),
    // Certificates are files.
    ("storage/postgres", &["domain", "error", "files"]),
    ("storage/redis", &["domain", "error", "files"]),
    ("storage/open.rs", &["clock", "domain", "error", "journal"]),
    ("coordination", &["domain", "error"]),
    ("coordination/embedded", &["domain", "error", "journal"]),
    ("coordination/zookeeper", &["clock", "domain", "error"]),
    ("journal", &["clock", "domain"]),
    ("clock.rs", &["domain"]),
    ("clock", &["domain"]),
    ("error.rs", &["domain"]),
    ("domain", &["error"]),
];

/// Drivers, and the one file that names each. Everybody else has the handle over its trait.
pub const DRIVERS: &[(&str, &str)] = &[
    ("storage::embedded", "storage/open.rs"),
    ("storage::postgres", "storage/open.rs"),
    ("storage::redis", "storage/open.rs"),
    ("coordination::embedded", "server/mod.rs"),
];

/// The whole of `src/`.
const EVERYWHERE: &str = "";

/// The homes of each crate that `Cargo.toml` takes for the program.
pub const CRATES: &[(&str, &[&str])] = &[
    ("anstream", &["cli/client/printer.rs", "cli/client/top", "telemetry.rs"]),
    ("anyhow", &["cli", "main.rs"]),
    ("async_trait", &["coordination", "storage"]),
    ("axum", &["api", "cli/bench", "server"]),
    ("base64", &["api/sqs", "domain/receipt.rs"]),
    ("bytes", &[EVERYWHERE]),
    ("bytesize", &["units.rs"]),
    ("clap", &["cli", "config", "config.rs", "server/face.rs"]),
    ("clap_complete", &["cli/completions.rs"]),
    ("comfy_table", &["cli/client/table.rs"]),
    ("crossterm", &["cli/client/top"]),
    ("deadpool", &["storage/postgres"]),
    ("fjall", &["journal"]),
    ("form_urlencoded", &["api"]),
    (
        "futures_util",
        &[
            "broker/listing_admission.rs",
            "broker/loads.rs",
            "broker/overview.rs",
            "broker/queue_counting.rs",
            "broker/queue_counts.rs",
            "broker/quotas.rs",
            "broker/reach.rs",
            "broker/survey.rs",
            "catalogue",
            "cli/bench",
            "keystone",
        ],
    ),
    ("hdrhistogram", &["cli/bench"]),
    ("hmac", &["api/sqs", "domain/access.rs", "domain/receipt.rs"]),
    ("http", &["api", "cli", "cluster", "keystone", "server"]),
    ("http_body_util", &["api", "cli/bench", "cluster", "keystone"]),
    (
        "hyper",
        &[
            "api/bodies.rs",
            // The body of a request is watched on its way.
            "api/deadline.rs",
            "api/forward/replayable_body.rs",
            "api/delivery.rs",
            "api/unread.rs",
            "cli/bench",
            "cluster/peer_response.rs",
            "cluster/connection.rs",
            "cluster/peers.rs",
            "keystone",
            "server",
        ],
    ),
    ("humantime", &["units.rs"]),
    ("hyper_rustls", &["keystone"]),
    ("hyper_util", &["cli/bench", "cluster/connection.rs", "keystone", "server"]),
    ("indicatif", &["cli/client"]),
    ("jiff", &["cli/client/doctor", "domain/time.rs"]),
    // Writes a table of the store anew.
    ("lsm_tree", &["journal/mend.rs"]),
    ("matchit", &["api/auth.rs"]),
    ("md5", &["api/sqs"]),
    ("mimalloc", &["main.rs"]),
    (
        "parking_lot",
        &[
            "api/failures.rs",
            "api/forward/replayable_body.rs",
            "api/admission.rs",
            "api/sqs/pauses.rs",
            "broker",
            "budget.rs",
            "clock.rs",
            "cluster/connection.rs",
            "coordination",
            "journal",
            "keystone",
            "metrics",
            "server",
            "storage",
        ],
    ),
    ("pin_project_lite", &["server"]),
    ("prometheus_client", &["metrics"]),
    // In domain and placement only the traits: the dice are passed in.
    (
        "rand",
        &[
            "api/layers.rs",
            "broker",
            "cli/bench",
            "cli/token.rs",
            "coordination/zookeeper",
            "domain/access.rs",
            "domain/ids.rs",
            // The name of a copy, and the number of a store.
            "journal/copy.rs",
            "journal/store.rs",
            "placement",
            // What tells a fence from another one.
            "storage/redis/stored.rs",
        ],
    ),
    ("redis", &["storage/redis"]),
    ("rustix", &["cli", "clock.rs", "files.rs", "journal", "metrics/process.rs", "server"]),
    (
        "rustls",
        &["cli/client/tls_words.rs", "keystone", "server/tls.rs", "storage/postgres", "storage/redis"],
    ),
    ("rustls_native_certs", &["keystone", "storage/postgres"]),
    ("serde", &["api", "catalogue", "cli", "cluster/peer_client.rs", "config", "domain", "keystone"]),
    ("serde_json", &["api", "catalogue", "cli", "cluster/peer_client.rs", "domain", "keystone"]),
    ("sd_notify", &["server/systemd.rs"]),
    ("serde_path_to_error", &["api/explain.rs"]),
    // What names the tables of a store and their parts, to be read without the store.
    ("sfa", &["journal"]),
    ("sha2", &["api/sqs", "domain/access.rs", "domain/dedup.rs", "domain/receipt.rs"]),
    // The system probes connections of clients, and of other replicas.
    ("socket2", &["cluster/connection.rs", "server"]),
    // Names that are meant.
    ("strsim", &["spelling.rs"]),
    ("subtle", &["domain/access.rs"]),
    ("thiserror", &[EVERYWHERE]),
    (
        "tokio",
        &[
            "api",
            "broker",
            "budget",
            "budget.rs",
            "catalogue",
            "cli",
            "cluster/peer_response.rs",
            "cluster/connection.rs",
            "cluster/peers.rs",
            "coordination",
            "journal",
            "keystone",
            "server",
            "storage",
        ],
    ),
    ("tokio_postgres", &["storage/postgres"]),
    ("tokio_postgres_rustls", &["storage/postgres"]),
    ("tokio_rustls", &["server/tls.rs"]),
    ("tokio_util", &["broker", "cli", "coordination", "server"]),
    ("toml", &["cli/client/context_file.rs", "config"]),
    ("tower", &["api/front.rs", "cluster/connection.rs", "keystone", "server"]),
    ("tower_http", &["api/metrics.rs"]),
    (
        "tracing",
        &[
            "api",
            "broker",
            "cli",
            "clock.rs",
            "coordination/zookeeper",
            "journal",
            "keystone",
            "server",
            "storage/embedded",
            "telemetry.rs",
        ],
    ),
    ("tracing_subscriber", &["telemetry.rs"]),
    ("unicode_width", &["cli/client/table.rs"]),
    ("ureq", &["cli/client/remote.rs"]),
    ("utoipa", &["api"]),
    ("utoipa_axum", &["api"]),
    (
        "uuid",
        &[
            "api",
            "broker",
            "catalogue",
            "cli",
            "cluster",
            "coordination/zookeeper",
            "domain",
            "server",
            "storage",
        ],
    ),
    ("xxhash_rust", &["domain/ids.rs", "journal", "placement/rendezvous.rs"]),
    ("zookeeper_client", &["coordination/zookeeper"]),
];

/// Parts that never wait, read a clock or roll dice: time and randomness are arguments there.
pub const PURE: &[&str] = &["domain", "engine", "placement"];

/// What waits, reads a clock or rolls dice.
pub const IMPURE: &[&str] = &[
    "async",
    ".await",
    "Instant::now",
    "SystemTime",
    "Timestamp::now",
    "Zoned::now",
    "thread_rng",
    "rand::rng",
    "rand::random",
    "from_os_rng",
    "new_v4",
];

/// What no commit leaves behind, in `src/` and `tests/`.
pub const UNFINISHED: &[&str] = &["todo!(", "unimplemented!(", "dbg!(", "#[ignore"];

/// Words that name no job, in files, folders and modules: what has no home has no name yet.
pub const EMPTY_NAMES: &[&str] =
    &["util", "utils", "common", "helper", "helpers", "misc", "manager", "service", "base"];

/// Lines of a file, in `src/` and `tests/`. Past it a file is split by subject.
pub const LINES: usize = 500;
