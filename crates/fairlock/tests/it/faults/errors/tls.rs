//! TLS, with a certificate authority made for one test.

use std::path::{Path, PathBuf};
use std::process::Command;

use fairlock::{Client, StoreErrorKind};
use fairlock_testkit::{Server, main_flavour};

use super::trouble;

/// Certificates in a folder that is removed with its owner.
struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// An authority, and a certificate for 127.0.0.1 that it has signed.
    fn new(name: &str) -> Self {
        let folder = format!("fairlock-tls-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written to");
        let this = Self { folder };
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-x509"];
        let authority = ["-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=fairlock test CA"];
        this.openssl(&[&["req"], &key[..], &authority].concat());
        let own = ["-keyout", "server.key", "-out", "server.crt", "-subj", "/CN=fairlock test"];
        let of = ["-CA", "ca.crt", "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1"];
        let not_an_authority = ["-addext", "basicConstraints=critical,CA:FALSE"];
        this.openssl(&[&["req"], &key[..], &own, &of, &not_an_authority].concat());
        this
    }

    fn openssl(&self, args: &[&str]) {
        let output = Command::new("openssl").args(args).current_dir(&self.folder).output();
        let output = output.expect("openssl is on the PATH");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn server(&self) -> Server {
        let flavour = main_flavour();
        assert!(flavour.has_tls(), "{} was built without TLS", flavour.name);
        Server::builder(&flavour)
            .tls(&self.file("server.crt"), &self.file("server.key"), &self.file("ca.crt"))
            .start()
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

#[test]
fn a_server_with_a_certificate_of_a_trusted_authority() {
    let certificates = Certificates::new("trusted");
    let server = certificates.server();
    let (success, output) = play(&server.tls_url(), &certificates.file("ca.crt"));
    assert!(success, "{output}");
}

#[test]
fn a_server_with_a_certificate_for_another_host() {
    let certificates = Certificates::new("other-host");
    let server = certificates.server();
    let url = server.tls_url().replace("127.0.0.1", "localhost");
    let (success, output) = play(&url, &certificates.file("ca.crt"));
    assert!(!success && output.to_lowercase().contains("certificate"), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_a_certificate_of_an_unknown_authority() {
    let certificates = Certificates::new("unknown");
    let server = certificates.server();
    let error = Client::connect(&server.tls_url()).await.expect_err("nobody knows the authority");
    let text = error.to_string();
    assert!(text.to_lowercase().contains("certificate"), "what is wrong? {text}");
    assert!(matches!(trouble(Err::<(), _>(error)), StoreErrorKind::Unreachable { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_tls() {
    let server = Server::start(&main_flavour());
    let url = server.url().replace("redis://", "rediss://");
    let error = Client::connect(&url).await.expect_err("it does not speak TLS");
    let text = error.to_string();
    assert!(text.contains("rediss://127.0.0.1"), "{text}");
    assert!(matches!(trouble(Err::<(), _>(error)), StoreErrorKind::Unreachable { .. }));
}

/// Locks over TLS in a process of its own, which trusts this authority; what it prints.
fn play(url: &str, authority: &Path) -> (bool, String) {
    let program = std::env::current_exe().expect("a running program has a file");
    let output = Command::new(program)
        .args(["--exact", "faults::errors::tls::over_tls", "--nocapture"])
        .env(URL, url)
        .env("SSL_CERT_FILE", authority)
        .output()
        .expect("this program can be started again");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Not a test when it runs among the others: only the part to play in the other process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tls() {
    let Ok(url) = std::env::var(URL) else { return };
    let (alice, bob) = (Client::connect(&url).await.unwrap(), Client::connect(&url).await.unwrap());
    let guard = alice.lock("a").lock().await.unwrap();
    assert!(bob.lock("a").try_lock().await.unwrap().is_none());
    let waiting = tokio::spawn(async move { bob.lock("a").lock().await.unwrap() });
    guard.reenter().await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
}

const URL: &str = "FAIRLOCK_TLS_TEST_URL";
