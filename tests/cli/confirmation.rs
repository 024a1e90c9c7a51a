//! `angarium subscription confirm` and `unconfirm`, against a real server.

use super::beside_a_server;
use super::doctor::check;

#[test]
fn webhook_is_confirmed_and_unconfirmed() {
    let it = beside_a_server();
    let id = it.program.plain(&["subscription", "create", "orders", "https://hooks.example/"]).remove(0);
    let confirmed = || it.program.json(&["subscription", "show", "orders", &id])["confirmed"].clone();
    assert_eq!(confirmed(), true);
    let said = it.program.say(&["subscription", "unconfirm", "orders", &id]);
    assert_eq!(said, format!("subscription {id} is not confirmed any more\n"));
    assert_eq!(confirmed(), false);
    let listed = it.program.say(&["subscription", "list", "orders"]);
    assert!(listed.contains("s, not confirmed"), "{listed}");
    let checks = it.program.json(&["doctor", "--queue", "orders"]);
    let found = check(&checks, &format!("subscription orders/{id}"));
    assert_eq!(found, ("warning", "it is not confirmed and gets no copies"));
    let explained = it.program.say(&["queue", "explain", "orders"]);
    assert!(
        explained.contains(&format!("subscription {id} is not confirmed and gets no copies")),
        "{explained}"
    );
    let said = it.program.say(&["subscription", "confirm", "orders", &id]);
    assert_eq!(said, format!("subscription {id} is confirmed\n"));
    assert_eq!(confirmed(), true);
}
