//! The signals that reach us, one after the other.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::processes;

/// Listens to signals, from when it is made.
#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Signal, Stream)>,
}

impl Signals {
    /// Those that end us or tell us something. What our caller wants to be ignored stays ignored,
    /// here and in the command.
    pub(crate) fn listen() -> io::Result<Self> {
        let mut signals = Self { streams: Vec::new() };
        for one in FORWARDED {
            if !processes::is_ignored(one) {
                signals.add(one)?;
            }
        }
        signals.add(Signal::CHILD)?;
        signals.add(Signal::CONT)?;
        Ok(signals)
    }

    /// Also listens to this one, which then has no other effect.
    pub(crate) fn add(&mut self, one: Signal) -> io::Result<()> {
        self.streams.push((one, signal(SignalKind::from_raw(one.as_raw()))?));
        Ok(())
    }

    /// The next one. Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next one that asks us to leave off.
    pub(crate) async fn next_to_end_us(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if ENDING.contains(&signal) {
                return signal;
            }
        }
    }
}

/// Whether the command should get what we got.
pub(crate) fn is_forwarded(signal: Signal) -> bool {
    FORWARDED.contains(&signal)
}

const ENDING: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
const FORWARDED: [Signal; 7] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
];
