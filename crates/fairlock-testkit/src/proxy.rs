//! A network that can be made to fail: a TCP proxy in front of a server.

mod controls;
mod link;
mod pairing;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use controls::{Controls, FaultKind};
use link::Link;

/// Forwards connections to a server on this machine, frame by frame, and fails on demand.
///
/// A *script call* is an EVALSHA or EVAL request. Every method may be called from any thread at
/// any time. Not understood, because no test needs it: CLIENT REPLY, MONITOR, and SUBSCRIBE
/// commands that are answered with an error.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    controls: Arc<Controls>,
    accepter: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy in front of 127.0.0.1:`target_port`.
    pub fn start(target_port: u16) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port can be bound");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let controls = Arc::new(Controls::default());
        let accepter = thread::Builder::new()
            .name("proxy-accept".to_owned())
            .spawn({
                let controls = Arc::clone(&controls);
                move || accept_all(&listener, target_port, &controls)
            })
            .expect("a thread can be started");
        Proxy { port, controls, accepter: Some(accepter) }
    }

    /// The port to connect to instead of the server's.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `redis://127.0.0.1:<port>/`, for a server without a password.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Loses the reply to a script call: counting from now and from 0, over all connections, when
    /// the `k`-th such reply comes from the server, it is not forwarded and its connection is
    /// closed. The call was executed; the client cannot know. Fires once, and replaces a fault
    /// that has not fired yet.
    pub fn swallow_reply(&self, k: u64) {
        self.controls.arm(FaultKind::Swallow, k);
    }

    /// Like [`swallow_reply`](Proxy::swallow_reply), but the connection stays open and nothing
    /// passes on it any more in either direction: the client has to find out by waiting.
    pub fn blackhole_reply(&self, k: u64) {
        self.controls.arm(FaultKind::Blackhole, k);
    }

    /// Whether the fault set last by [`swallow_reply`](Proxy::swallow_reply) or
    /// [`blackhole_reply`](Proxy::blackhole_reply) has fired.
    pub fn swallowed(&self) -> bool {
        self.controls.read(|state| state.fault_fired)
    }

    /// Replies to script calls that came from the server since the start, forwarded or not;
    /// errors such as NOSCRIPT count too.
    pub fn script_calls_seen(&self) -> u64 {
        self.controls.read(|state| state.script_replies)
    }

    /// From now on keeps back script calls, and everything behind them on their connection, even
    /// when the client closes that connection.
    pub fn hold_requests(&self) {
        self.controls.hold(true);
    }

    /// Like [`hold_requests`](Proxy::hold_requests), but only on the connections open now: what
    /// is sent on new ones overtakes what is kept back.
    pub fn hold_requests_of_open_connections(&self) {
        self.controls.hold(false);
    }

    /// How many script calls are kept back now.
    pub fn held(&self) -> usize {
        self.controls.links().iter().map(|link| link.held()).sum()
    }

    /// Sends everything kept back to the server, on the connections it was meant for, and goes
    /// back to normal.
    pub fn release_requests(&self) {
        self.controls.release();
    }

    /// Closes every connection now open; what was kept back on them is lost.
    pub fn cut(&self) {
        self.controls.cut();
    }

    /// While on, new connections are closed as soon as they are accepted.
    pub fn refuse(&self, on: bool) {
        self.controls.change(|state| state.refusing = on);
    }

    /// Waits this long before forwarding what has come from the server. What comes meanwhile
    /// waits for its own turn, so a reply may be late by up to twice the time.
    pub fn delay_replies(&self, delay: Duration) {
        self.controls.change(|state| state.reply_delay = delay);
    }

    /// Forwards nothing in either direction, not even the end of a connection, until
    /// [`resume`](Proxy::resume); then everything that waited arrives.
    pub fn pause(&self) {
        self.controls.change(|state| state.paused = true);
    }

    /// Ends [`pause`](Proxy::pause).
    pub fn resume(&self) {
        self.controls.change(|state| state.paused = false);
    }

    /// While on, published messages do not reach the clients.
    pub fn drop_pushes(&self, on: bool) {
        self.controls.change(|state| state.dropping_pushes = on);
    }

    /// How many published messages were dropped since the start.
    pub fn pushes_dropped(&self) -> u64 {
        self.controls.read(|state| state.pushes_dropped)
    }

    /// How many clients are connected now.
    pub fn connections(&self) -> usize {
        self.controls.links().iter().filter(|link| link.has_client()).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Closed before the threads go on, lest they forward what a pause has kept back.
        self.refuse(true);
        self.cut();
        self.controls.change(|state| state.closing = true);
        // Wakes the accepting thread, which then sees that it is to end.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(accepter) = self.accepter.take() {
            let _ = accepter.join();
        }
    }
}

fn accept_all(listener: &TcpListener, target_port: u16, controls: &Arc<Controls>) {
    let target = SocketAddr::from((Ipv4Addr::LOCALHOST, target_port));
    for client in listener.incoming() {
        let (closing, refusing) = controls.read(|state| (state.closing, state.refusing));
        if closing {
            break;
        }
        let Ok(client) = client else { continue };
        if refusing {
            continue;
        }
        // A server that is down looks to the client like a connection that closes at once.
        if let Ok(server) = TcpStream::connect_timeout(&target, CONNECT_BOUND) {
            Link::open(client, server, controls);
        }
    }
}

const CONNECT_BOUND: Duration = Duration::from_secs(5);
