//! What holds in this house, as plain data. A path is below `src/`, or begins with the name of a crate: `broker/slot.rs`
//! is `crates/broker/src/slot.rs`. Modules are written as in Rust, those of other crates with the name of the crate in
//! front. A row holds for all that is below its path, and the longest path wins. A row that is wrong is changed in a
//! commit of its own.

/// Which parts a part may name. Itself is always allowed.
pub const IMPORTS: &[(&str, &[&str])] = &[
    ("lib.rs", &[]),
    ("main.rs", &["commands"]),
    (
        "commands",
        &[
            "api::openapi",
            "bench",
            "client",
            "config",
            "core::time",
            "server",
            "telemetry",
            "settings::units",
        ],
    ),
    // From outside only, so that it can drive any server that speaks the API.
    ("bench", &["settings::units"]),
    // What is documented: settings, bounds, errors.
    (
        "commands/docs",
        &["api::error_table", "client", "config", "core::limits", "server::limits", "settings::units"],
    ),
    ("commands/token.rs", &["config", "core"]),
    ("client", &["settings::spelling", "settings::units"]),
    ("config", &["core", "settings::files", "settings::spelling", "settings::units"]),
    ("settings", &[]),
    // The keys of attributes.
    ("client/attributes.rs", &["core::attributes", "settings::spelling"]),
    // A store that no service has open is read where it lies.
    ("client/doctor/store.rs", &["coordination", "core::queue", "journal", "storage"]),
    // Of coordination only the address of an ensemble, of placement the name of an algorithm: both are settings. Of
    // domain the defaults.
    ("config.rs", &["coordination::zookeeper", "core::limits", "engine::placement", "settings::units"]),
    ("telemetry.rs", &["config"]),
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
            "core",
            "journal",
            "metrics",
            "engine::placement",
            "storage",
            "telemetry",
        ],
    ),
    ("server/face.rs", &["api", "clock", "config", "core", "keystone"]),
    ("server/peers.rs", &["config", "core"]),
    ("server/webhooks.rs", &["broker", "config", "core", "webhook"]),
    ("server/tree.rs", &["catalogue", "clock", "config", "coordination", "journal"]),
    ("server", &["budget", "core", "metrics"]),
    // Certificates are files.
    ("server/tls.rs", &["settings::files"]),
    ("budget.rs", &[]),
    ("budget", &[]),
    ("api", &["broker", "core", "metrics"]),
    // The one place that asks Keystone.
    ("api/pipeline/credentials.rs", &["core", "keystone", "metrics"]),
    ("api/pipeline/bodies.rs", &["budget", "core"]),
    // Of the clock only the handle: rates are by the second.
    ("api/mod.rs", &["broker", "clock", "core", "metrics"]),
    ("api/pipeline/admission.rs", &["clock", "core"]),
    // The clock judges dates of signatures.
    ("api/sqs/endpoint.rs", &["broker", "clock", "core", "metrics"]),
    // Of the cluster only the way to the other replicas: where a queue is served is the broker's to say.
    ("api/pipeline/forward", &["broker", "cluster::peers", "cluster::peer_client", "core", "metrics"]),
    ("api/peer.rs", &["broker", "cluster::peer_client", "core"]),
    (
        "broker",
        &[
            "catalogue",
            "clock",
            "cluster",
            "core",
            "engine",
            "filter",
            "metrics",
            "engine::placement",
            "storage",
        ],
    ),
    // What is recorded of the time is the clock's to say.
    ("catalogue/time.rs", &["clock", "coordination", "core"]),
    ("catalogue", &["coordination", "core"]),
    ("cluster", &["catalogue", "core", "engine::placement"]),
    ("engine/placement", &[]),
    ("engine", &["core"]),
    ("filter", &["core"]),
    // Of the service it knows networks, and bounds that the API checks too.
    ("webhook", &["core::limits", "core::network"]),
    // Certificates and secrets are files. The clock judges when tokens expire.
    ("keystone", &["clock", "core", "settings::files", "metrics"]),
    // Names of queues, and bounds.
    ("metrics", &["core"]),
    ("storage", &["core"]),
    ("storage/embedded", &["core", "journal"]),
    // Of the clock only its test.
    ("storage/embedded/audit.rs", &["clock", "core", "journal"]),
    // Certificates are files.
    ("storage/postgres", &["core", "settings::files"]),
    ("storage/redis", &["core", "settings::files"]),
    ("storage/open.rs", &["clock", "core", "journal"]),
    ("coordination", &["core"]),
    ("coordination/embedded", &["core", "journal"]),
    ("coordination/zookeeper", &["clock", "core"]),
    ("journal", &["clock", "core"]),
    ("clock/lib.rs", &["core"]),
    ("clock", &["core"]),
    ("core/error.rs", &["core"]),
    ("core", &[]),
];

/// Parts that may not name modules of their own part, but in the one file that is given: the seam between them.
pub const SEAMS: &[(&str, &str, &[&str])] =
    &[("api/pipeline", "api/pipeline/protocol.rs", &["api::rest", "api::sqs", "api::v2"])];

/// The components of the broker, from below: each names only those of the rows before its own.
pub const COMPONENTS: &[&[&str]] = &[
    &["limits"],
    &["replica"],
    &["stores", "ledger"],
    &["writer"],
    &["slot"],
    &["slots"],
    &["pools"],
    &["quotas", "holds"],
    &["open_queues"],
    &["messages", "transfer", "migration", "counting"],
    &["claims", "queues", "explain"],
    &["webhooks"],
    &["redrive", "balance", "subscriptions", "sweeps", "health"],
    &["reports"],
    &["background"],
    &["start", "broker"],
];

/// Drivers, and the one file that names each. Everybody else has the handle over its trait.
pub const DRIVERS: &[(&str, &str)] = &[
    ("storage::embedded", "storage/open.rs"),
    ("storage::postgres", "storage/open.rs"),
    ("storage::redis", "storage/open.rs"),
    ("coordination::embedded", "server/mod.rs"),
];

/// The whole program.
const EVERYWHERE: &str = "";

/// The homes of each crate that `Cargo.toml` takes for the program.
pub const CRATES: &[(&str, &[&str])] = &[
    ("anstream", &["client/printer.rs", "client/top", "telemetry.rs"]),
    ("anyhow", &["commands", "main.rs", "bench"]),
    (
        "async_trait",
        &[
            "broker/webhooks/sender.rs",
            "cluster/peers.rs",
            "coordination",
            "server/webhooks.rs",
            "storage",
            "webhook/resolver.rs",
        ],
    ),
    ("axum", &["api", "bench", "server"]),
    ("base64", &["api/sqs", "core/receipt.rs", "core/webhook.rs", "webhook/signature.rs"]),
    ("bytes", &[EVERYWHERE]),
    ("bytesize", &["settings/units.rs"]),
    ("clap", &["commands", "config", "config.rs", "server/face.rs", "bench", "client"]),
    ("clap_complete", &["commands/completions.rs"]),
    ("comfy_table", &["client/table.rs"]),
    ("crossterm", &["client/top"]),
    ("deadpool", &["storage/postgres"]),
    ("fjall", &["journal"]),
    ("form_urlencoded", &["api"]),
    (
        "futures_util",
        &[
            "broker/balance",
            "broker/counting",
            "broker/health/reach.rs",
            "broker/holds",
            "broker/quotas",
            "broker/reports/overview.rs",
            "broker/slot/counted.rs",
            "broker/webhooks",
            "catalogue",
            "bench",
            "keystone",
        ],
    ),
    ("hdrhistogram", &["bench"]),
    ("hmac", &["api/sqs", "core/access.rs", "core/receipt.rs", "webhook/signature.rs"]),
    ("http", &["api", "commands", "cluster", "keystone", "server", "bench", "client", "webhook"]),
    ("http_body_util", &["api", "bench", "cluster", "keystone", "webhook"]),
    ("httpdate", &["webhook/answer.rs"]),
    (
        "hyper",
        &[
            "api/pipeline/bodies.rs",
            // The body of a request is watched on its way.
            "api/pipeline/deadline.rs",
            "api/pipeline/forward/replayable_body.rs",
            "api/delivery.rs",
            "api/pipeline/frame.rs",
            "api/pipeline/unread.rs",
            "bench",
            "cluster/peer_response.rs",
            "cluster/connection.rs",
            "cluster/peers.rs",
            "keystone",
            "server",
            "webhook/connection.rs",
        ],
    ),
    ("humantime", &["settings/units.rs"]),
    ("hyper_rustls", &["keystone"]),
    ("hyper_util", &["bench", "cluster/connection.rs", "keystone", "server", "webhook/connection.rs"]),
    ("indicatif", &["client"]),
    ("jiff", &["client/doctor", "client/hold.rs", "core/time.rs"]),
    // Writes a table of the store anew.
    ("lsm_tree", &["journal/mend.rs"]),
    ("matchit", &["api/rest/operations.rs"]),
    ("md5", &["api/sqs"]),
    ("mimalloc", &["main.rs"]),
    (
        "parking_lot",
        &[
            "api/pipeline/failures.rs",
            "api/pipeline/forward/replayable_body.rs",
            "api/pipeline/admission.rs",
            "api/sqs/pauses.rs",
            "broker",
            "budget.rs",
            "clock/lib.rs",
            "cluster/connection.rs",
            "cluster/random.rs",
            "cluster/tasks.rs",
            "coordination",
            "journal",
            "keystone",
            "metrics",
            "server",
            "storage",
            "webhook/idle.rs",
        ],
    ),
    ("pin_project_lite", &["cluster/tasks.rs", "server"]),
    ("prometheus_client", &["metrics"]),
    // In domain and placement only the traits: the dice are passed in.
    (
        "rand",
        &[
            "api/pipeline/frame.rs",
            "broker",
            "bench",
            "cluster/random.rs",
            "commands/token.rs",
            "coordination/zookeeper",
            "core/access.rs",
            "core/ids.rs",
            // The name of a copy, and the number of a store.
            "journal/copy.rs",
            "journal/store.rs",
            "engine/placement",
            // What tells a fence from another one.
            "storage/redis/stored.rs",
        ],
    ),
    ("redis", &["storage/redis"]),
    (
        "rustix",
        &[
            "commands",
            "clock/lib.rs",
            "settings/files.rs",
            "journal",
            "metrics/process.rs",
            "server",
            "bench",
            "client",
        ],
    ),
    (
        "rustls",
        &["client/tls_words.rs", "keystone", "server/tls.rs", "storage/postgres", "storage/redis", "webhook"],
    ),
    ("rustls_native_certs", &["keystone", "storage/postgres", "webhook/client.rs"]),
    (
        "serde",
        &[
            "api",
            "catalogue",
            "commands",
            "cluster/peer_client.rs",
            "config",
            "core",
            "keystone",
            "bench",
            "client",
        ],
    ),
    (
        "serde_json",
        &[
            "api",
            "catalogue",
            "commands",
            "cluster/peer_client.rs",
            "core",
            "filter",
            "keystone",
            "bench",
            "client",
        ],
    ),
    ("sd_notify", &["server/systemd.rs"]),
    ("serde_path_to_error", &["api/explain.rs"]),
    // What names the tables of a store and their parts, to be read without the store.
    ("sfa", &["journal"]),
    ("sha2", &["api/sqs", "core/access.rs", "core/dedup.rs", "core/receipt.rs", "webhook/signature.rs"]),
    ("siphasher", &["core/maps.rs"]),
    // The system probes connections of clients, and of other replicas.
    ("socket2", &["cluster/connection.rs", "server"]),
    // Names that are meant.
    ("strsim", &["settings/spelling.rs"]),
    ("subtle", &["core/access.rs"]),
    ("thiserror", &[EVERYWHERE]),
    (
        "tokio",
        &[
            "bench",
            "client",
            "api",
            "broker",
            "budget",
            "budget.rs",
            "catalogue",
            "clock/lib.rs",
            "commands",
            "cluster/peer_response.rs",
            "cluster/connection.rs",
            "cluster/peers.rs",
            "cluster/tasks.rs",
            "coordination",
            "journal",
            "keystone",
            "server",
            "storage",
            "webhook",
        ],
    ),
    ("tokio_postgres", &["storage/postgres"]),
    ("tokio_postgres_rustls", &["storage/postgres"]),
    ("tokio_rustls", &["server/tls.rs", "webhook/client.rs"]),
    ("tokio_util", &["broker", "cluster/tasks.rs", "commands", "coordination", "server", "bench"]),
    ("toml", &["client/context_file.rs", "config"]),
    ("tower", &["api/front.rs", "api/rest/mod.rs", "cluster/connection.rs", "keystone", "server"]),
    ("tower_http", &["api/metrics.rs"]),
    (
        "tracing",
        &[
            "client",
            "api",
            "broker",
            "commands",
            "clock/lib.rs",
            "coordination/zookeeper",
            "journal",
            "keystone",
            "server",
            "storage/embedded",
            "telemetry.rs",
        ],
    ),
    ("tracing_subscriber", &["telemetry.rs"]),
    ("unicode_width", &["client/table.rs"]),
    ("ureq", &["client/remote.rs"]),
    ("utoipa", &["api"]),
    ("utoipa_axum", &["api"]),
    (
        "uuid",
        &[
            "bench",
            "client",
            "api",
            "broker",
            "catalogue",
            "commands",
            "cluster",
            "coordination/zookeeper",
            "core",
            "server",
            "storage",
        ],
    ),
    ("xxhash_rust", &["core/ids.rs", "journal", "engine/placement/rendezvous.rs"]),
    ("zookeeper_client", &["coordination/zookeeper"]),
];

/// Parts that never wait, read a clock or roll dice: time and randomness are arguments there.
pub const PURE: &[&str] = &["core", "engine", "filter"];

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

/// Parts that run under a simulated clock: they take time and randomness from the handles of their replica, and state the
/// order in which the branches of a `select!` are looked at.
pub const DETERMINED: &[&str] = &["broker", "catalogue", "cluster", "engine"];

/// Sources of time and randomness that no seed determines.
pub const AMBIENT: &[&str] =
    &["SystemTime", "thread_rng", "rand::rng", "rand::random", "from_os_rng", "new_v4"];

/// Types of std whose values no seed determines, with their modules, and what has them instead.
pub const AMBIENT_TYPES: &[(&str, &str, &str)] = &[
    ("std::time", "Instant", "tokio"),
    ("std::collections", "HashMap", "core::maps"),
    ("std::collections", "HashSet", "core::maps"),
];

/// The files that make the handles.
pub const HANDLES: &[&str] = &["cluster/random.rs"];

/// What no commit leaves behind.
pub const UNFINISHED: &[&str] = &["todo!(", "unimplemented!(", "dbg!(", "#[ignore"];

/// Words that name no job, in files, folders and modules: what has no home has no name yet.
pub const EMPTY_NAMES: &[&str] =
    &["util", "utils", "common", "helper", "helpers", "misc", "manager", "service", "base"];

/// Lines of a file. Past it a file is split by subject.
pub const LINES: usize = 500;
