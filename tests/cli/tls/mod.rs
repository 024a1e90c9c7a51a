//! `https://`: a server is trusted by the CA that is named, and by no other. The certificates beside this file are for
//! 127.0.0.1, last until 2126 and protect nothing.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::Program;
use angarium_testbed::settings::test_tools;

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/tls");

/// A server that answers 204 to everything; it ends with its value.
struct Secure {
    child: Child,
    url: String,
}

impl Secure {
    fn start() -> Self {
        let server = "
import http.server, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(204)
        self.end_headers()
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1] + '/server.pem', sys.argv[1] + '/key.pem')
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()";
        let python = test_tools().join("bin/python");
        let mut child = Command::new(&python)
            .args(["-c", server, FILES])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}. Run the tests with tests/run", python.display()));
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { url: format!("https://127.0.0.1:{}", port.trim()), child }
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        // Both fail only when the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn only_server_of_named_ca_is_trusted() {
    let server = Secure::start();
    let program = Program::new(Some(&server.url));
    let said = program.say(&["ping", "--ca", &format!("{FILES}/ca.pem")]);
    assert!(said.starts_with("https://"), "{said}");
    // What was not trusted was not sent anything: so a write has no unknown outcome either.
    let refused = program.run(&["message", "post", "q", "x"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.err.contains("its certificate is signed by an untrusted CA"), "{}", refused.err);
    assert!(!refused.err.contains("UnknownIssuer"), "{}", refused.err);
}

/// The program told of `InvalidContentType` and the like, the names of a library's errors.
#[test]
fn wrong_scheme_is_explained() {
    let server = Secure::start();
    let plain = server.url.replace("https://", "http://");
    let refused = Program::new(Some(&plain)).run(&["ping"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.err.contains("https://"), "{}", refused.err);
    let clear = super::beside_a_server();
    let url = clear.program.url.as_ref().unwrap().replace("http://", "https://");
    let refused = Program::new(Some(&url)).run(&["ping"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.err.contains("it does not speak TLS on this port"), "{}", refused.err);
}

#[test]
fn a_file_without_a_certificate_is_refused() {
    let program = Program::new(Some("https://127.0.0.1:1"));
    assert_eq!(program.run(&["ping", "--ca", &format!("{FILES}/key.pem")]).code, 2);
}
