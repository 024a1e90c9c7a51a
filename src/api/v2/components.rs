//! Components: the replicas of the service and the slots that they serve, for administrators.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::api::error::{ApiError, ErrorBody, Errors};
use crate::api::extract::{CallerHeaders, Path};
use crate::api::json::reply;
use crate::api::roles::{Admin, RoleHeaders};
use angarium_broker::{Broker, ClusterView, ComponentView};
use angarium_core::time::Timestamp;

/// All replicas that are up.
#[derive(Debug, Serialize, ToSchema)]
pub struct ComponentList {
    /// The replica that answers this request.
    answered_by: Uuid,
    /// Every replica that is registered, by address.
    components: Vec<Component>,
    /// The newest form of records in use. A replica that does not know it does not start, and while one is up that does not
    /// know a newer form, what needs that form is refused.
    schema: u32,
    /// Slots that no replica has at this moment.
    unowned_slots: Vec<u8>,
}

/// A replica.
#[derive(Debug, Serialize, ToSchema)]
pub struct Component {
    /// Which one: a process started again on the same data is the same replica.
    instance: Uuid,
    /// Where the other replicas reach it.
    #[schema(example = "10.0.0.5:8889")]
    address: String,
    /// Of its program.
    version: String,
    /// The newest form of records that it knows.
    schema: u32,
    /// `starting`, `running`, or `draining`: it hands its slots over and takes none.
    #[schema(example = "running")]
    state: &'static str,
    /// Its share of the slots.
    weight: u32,
    /// When it began, as `YYYY-MM-DDTHH:MM:SSZ`.
    started: String,
    /// The slots that it has, of the 256 in all. A queue is in one, by its project and name.
    slots: Vec<u8>,
    /// Whether it gets no slots, because others reach more pools or more replicas.
    passed_over: bool,
    /// The pools that it has not reached for the length of a session.
    unreached_pools: Vec<String>,
    /// The replicas that it has not reached for the length of a session.
    unreached_replicas: Vec<Uuid>,
}

impl From<ComponentView> for Component {
    fn from(view: ComponentView) -> Self {
        let component = view.component;
        let unreached = component.unreached.unwrap_or_default();
        Self {
            instance: component.instance,
            address: component.address,
            version: component.version,
            schema: component.schema,
            state: component.state.as_str(),
            weight: component.weight,
            started: Timestamp::from_millis(component.started).calendar(),
            slots: view.slots.into_iter().map(|slot| slot.0).collect(),
            passed_over: view.is_passed_over,
            unreached_pools: unreached.pools,
            unreached_replicas: unreached.peers,
        }
    }
}

impl From<ClusterView> for ComponentList {
    fn from(view: ClusterView) -> Self {
        Self {
            answered_by: view.answered_by,
            schema: view.schema.0,
            components: view.components.into_iter().map(Component::from).collect(),
            unowned_slots: view.unowned.into_iter().map(|slot| slot.0).collect(),
        }
    }
}

/// The path of an operation on a replica.
#[derive(Deserialize)]
pub struct ComponentPath {
    instance: Uuid,
}

/// Drain a replica
///
/// The replica hands its queues over to the other replicas. It takes no queues from then on and forwards requests
/// until it is stopped. When it has no queue left `components_list` shows it without slots.
#[utoipa::path(
    post, path = "/v2/components/{instance}/drain", operation_id = "component_drain_start", tag = "health",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(("instance" = Uuid, Path, description = "Which replica."), CallerHeaders, RoleHeaders),
    responses(
        (status = 202, description = "It was told."),
        (status = 404, description = "No such replica is up.", body = ErrorBody),
        (status = 409, description = "No other replica runs that could take its queues.", body = ErrorBody),
        Errors
    )
)]
pub async fn drain(
    State(broker): State<Broker>,
    _: Admin,
    Path(ComponentPath { instance }): Path<ComponentPath>,
) -> Result<StatusCode, ApiError> {
    broker.component_drain(instance).await?;
    Ok(StatusCode::ACCEPTED)
}

/// List the replicas
///
/// Every replica of the service, its state, and its slots.
#[utoipa::path(
    get, path = "/v2/components", operation_id = "components_list", tag = "health",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(CallerHeaders, RoleHeaders),
    responses(
        (status = 200, description = "The replicas.", body = ComponentList),
        (status = 403, description = "The caller is no administrator.", body = ErrorBody),
        Errors
    )
)]
pub async fn get(State(broker): State<Broker>, _: Admin) -> Result<Response, ApiError> {
    let view = broker.components().await?;
    Ok(reply(StatusCode::OK, &ComponentList::from(view)))
}
