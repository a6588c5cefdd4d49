//! One client's connection through the proxy.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use super::controls::{Controls, FaultKind};
use super::pairing::{Incoming, Pairing, Request, RequestKind};
use crate::resp::FrameReader;

/// The two sockets of one connection, and what is under way on them.
#[derive(Debug)]
pub(super) struct Link {
    client: TcpStream,
    server: TcpStream,
    requests: Mutex<Requests>,
    /// Apart from `requests`, which is locked while writing to a server that may itself be stuck
    /// until its replies are taken.
    pairing: Mutex<Pairing>,
    blackholed: AtomicBool,
}

#[derive(Debug, Default)]
struct Requests {
    holding: bool,
    kept: Vec<Request>,
    client_has_gone: bool,
}

impl Link {
    /// Connects both sides and starts the two forwarding threads.
    pub(super) fn open(client: TcpStream, server: TcpStream, controls: &Arc<Controls>) {
        for stream in [&client, &server] {
            stream.set_nodelay(true).expect("TCP_NODELAY can be set");
        }
        let link = Arc::new(Link {
            client,
            server,
            requests: Mutex::default(),
            pairing: Mutex::default(),
            blackholed: AtomicBool::new(false),
        });
        if controls.admit(&link) {
            link.start_thread("proxy-requests", controls, Link::forward_requests);
            link.start_thread("proxy-replies", controls, Link::forward_replies);
        }
    }

    pub(super) fn hold(&self) {
        self.requests().holding = true;
    }

    pub(super) fn has_client(&self) -> bool {
        !self.requests().client_has_gone
    }

    pub(super) fn held(&self) -> usize {
        self.requests().kept.iter().filter(|kept| kept.kind == RequestKind::Script).count()
    }

    pub(super) fn release(&self) {
        let mut requests = self.requests();
        requests.holding = false;
        let kept = std::mem::take(&mut requests.kept);
        kept.into_iter().for_each(|request| self.send(request));
        if requests.client_has_gone {
            self.end_requests();
        }
    }

    pub(super) fn close(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }

    fn start_thread(
        self: &Arc<Link>,
        name: &str,
        controls: &Arc<Controls>,
        forward: fn(&Arc<Link>, &Controls),
    ) {
        let (link, controls) = (Arc::clone(self), Arc::clone(controls));
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || forward(&link, &controls))
            .expect("a thread can be started");
    }

    fn forward_requests(self: &Arc<Link>, controls: &Controls) {
        let mut frames = FrameReader::default();
        while let Some(bytes) = read_some(&self.client) {
            controls.wait_while_paused();
            frames.feed(&bytes);
            while let Some(frame) = frames.next_frame() {
                self.take_request(Request::new(frame));
            }
        }
        controls.wait_while_paused();
        let mut requests = self.requests();
        requests.client_has_gone = true;
        if requests.kept.is_empty() {
            self.end_requests();
        }
    }

    fn take_request(&self, request: Request) {
        // Locked until it is sent, so that nothing released later is overtaken.
        let mut requests = self.requests();
        let is_behind = !requests.kept.is_empty();
        if requests.holding && (is_behind || request.kind == RequestKind::Script) {
            requests.kept.push(request);
        } else {
            self.send(request);
        }
    }

    fn send(&self, request: Request) {
        if self.is_blackholed() {
            return;
        }
        self.pairing().expect_reply_to(&request);
        // A server that has gone shows in the replies, where the link is closed.
        let _ = (&self.server).write_all(request.frame.bytes());
    }

    /// Tells the server that the client has gone, after everything sent before.
    fn end_requests(&self) {
        if !self.is_blackholed() {
            let _ = self.server.shutdown(Shutdown::Write);
        }
    }

    fn forward_replies(self: &Arc<Link>, controls: &Controls) {
        let mut frames = FrameReader::default();
        while let Some(bytes) = read_some(&self.server) {
            if self.is_blackholed() {
                continue;
            }
            controls.wait_reply_delay();
            controls.wait_while_paused();
            frames.feed(&bytes);
            self.pass_replies(&mut frames, controls);
        }
        controls.wait_while_paused();
        if !self.is_blackholed() {
            self.close();
            controls.forget(self);
        }
    }

    fn pass_replies(&self, frames: &mut FrameReader, controls: &Controls) {
        let mut passed = Vec::new();
        let mut fault = None;
        while fault.is_none()
            && let Some(frame) = frames.next_frame()
        {
            match self.pairing().classify(&frame) {
                Incoming::Message if controls.drops_push() => continue,
                Incoming::ScriptReply => fault = controls.script_reply(),
                Incoming::Message | Incoming::Other => {}
            }
            if fault.is_none() {
                passed.extend_from_slice(frame.bytes());
            }
        }
        if fault == Some(FaultKind::Blackhole) {
            self.blackholed.store(true, Ordering::SeqCst);
        }
        // What came before the lost reply still arrives. A client that has gone misses nothing.
        let _ = (&self.client).write_all(&passed);
        if fault == Some(FaultKind::Swallow) {
            self.close();
        }
    }

    fn is_blackholed(&self) -> bool {
        self.blackholed.load(Ordering::SeqCst)
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().expect(NO_PANIC)
    }

    fn pairing(&self) -> MutexGuard<'_, Pairing> {
        self.pairing.lock().expect(NO_PANIC)
    }
}

/// What has come in, or None when the other side has closed.
fn read_some(mut stream: &TcpStream) -> Option<Vec<u8>> {
    let mut buffer = vec![0; READ_SIZE];
    let length = stream.read(&mut buffer).ok().filter(|length| *length > 0)?;
    buffer.truncate(length);
    Some(buffer)
}

const READ_SIZE: usize = 16 * 1024;
const NO_PANIC: &str = "no thread of the proxy panics";
