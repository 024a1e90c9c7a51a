//! Where a client begins.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use serde_json::json;

use super::service;

#[test]
fn the_root_names_the_one_version() {
    let service = service();
    let answer = service.client.get("/").unwrap();
    assert_eq!(answer.status, 300);
    let version = &answer.json()["versions"][0];
    assert_eq!((&version["id"], &version["status"]), (&json!("2"), &json!("CURRENT")));
    assert_eq!(version["links"], json!([{"href": "/v2/", "rel": "self"}]));
    assert_eq!(version["media-types"][0]["type"], json!("application/vnd.openstack.messaging-v2+json"));
}

#[test]
fn home_document_has_own_media_type_and_is_cacheable() {
    let service = service();
    let answer = service.client.get("/v2/").unwrap();
    assert_eq!(
        (answer.status.as_u16(), answer.headers["content-type"].as_bytes()),
        (200, b"application/json-home".as_slice())
    );
    assert_eq!(answer.headers["cache-control"], "max-age=86400");
    let accept = [("Accept", "application/json-home")];
    assert_eq!(service.client.send(Method::GET, "/v2/", &accept, None).unwrap().status, 200);
    let without_slash = service.client.send(Method::GET, "/v2", &accept, None).unwrap();
    assert_eq!((without_slash.status.as_u16(), without_slash.json()), (200, answer.json()));
}

#[test]
fn the_home_document_names_every_method_of_its_resources() {
    let service = service();
    let home = service.client.get("/v2/").unwrap().json();
    let mut said: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for resource in home["resources"].as_object().unwrap().values() {
        let template = resource.get("href-template").or(resource.get("href")).unwrap().as_str().unwrap();
        let path = template.split("{?").next().unwrap();
        let methods = resource["hints"]["allow"].as_array().unwrap().iter();
        said.entry(path.to_owned())
            .or_default()
            .extend(methods.map(|name| name.as_str().unwrap().to_owned()));
    }
    assert!(said.len() >= 13);
    for (template, methods) in said {
        let parameters = [
            "{queue_name}",
            "{topic_name}",
            "{message_id}",
            "{claim_id}",
            "{subscription_id}",
            "{pool}",
            "{flavor}",
        ];
        let path = parameters.iter().fold(template, |path, parameter| path.replace(parameter, "x"));
        let options = service.client.send(Method::OPTIONS, &path, &[], None).unwrap();
        let allow = options.headers["allow"].to_str().unwrap().to_owned();
        let allowed = allow.split(", ").filter(|method| !["HEAD", "OPTIONS"].contains(method));
        assert_eq!(methods, allowed.map(str::to_owned).collect(), "{path}");
    }
}

#[test]
fn the_service_describes_itself_without_anything_from_elsewhere() {
    let service = service();
    let document = service.client.get("/v2/openapi.json").unwrap();
    assert_eq!(document.status, 200);
    let printed = include_str!("../../openapi/angarium.json");
    assert!(document.text() == printed, "the served document is the printed one");
    let accept = [("Accept", "text/html")];
    let page = service.client.send(Method::GET, "/v2/docs", &accept, None).unwrap();
    assert_eq!(
        (page.status.as_u16(), page.headers["content-type"].as_bytes()),
        (200, b"text/html; charset=utf-8".as_slice())
    );
    let page = page.text();
    for from_elsewhere in ["src=", "href=\"http", "@import", "url("] {
        assert!(!page.contains(from_elsewhere), "{from_elsewhere}");
    }
    let paths = document.json()["paths"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert!(paths.iter().all(|path| page.contains(path.as_str())));
}
