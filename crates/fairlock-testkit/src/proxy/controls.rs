//! What the proxy has been told to do, shared by its threads.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::link::Link;

/// The shared state and its signal.
#[derive(Debug, Default)]
pub(super) struct Controls {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) closing: bool,
    pub(super) refusing: bool,
    pub(super) paused: bool,
    pub(super) reply_delay: Duration,
    pub(super) dropping_pushes: bool,
    pub(super) pushes_dropped: u64,
    pub(super) script_replies: u64,
    pub(super) fault_fired: bool,
    fault: Option<Fault>,
    holding_new_links: bool,
    links: Vec<Arc<Link>>,
}

/// What happens to the reply of a script call, once `replies_before_it` more have passed.
#[derive(Debug)]
struct Fault {
    kind: FaultKind,
    replies_before_it: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultKind {
    Swallow,
    Blackhole,
}

impl Controls {
    pub(super) fn read<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.state.lock().expect(NO_PANIC))
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state.lock().expect(NO_PANIC));
        self.changed.notify_all();
        result
    }

    pub(super) fn arm(&self, kind: FaultKind, replies_before_it: u64) {
        self.change(|state| {
            state.fault = Some(Fault { kind, replies_before_it });
            state.fault_fired = false;
        });
    }

    /// Counts a reply to a script call; says what is to happen to it.
    pub(super) fn script_reply(&self) -> Option<FaultKind> {
        self.change(|state| {
            state.script_replies += 1;
            match &mut state.fault {
                Some(fault) if fault.replies_before_it > 0 => fault.replies_before_it -= 1,
                Some(_) => state.fault_fired = true,
                None => {}
            }
            if state.fault_fired { state.fault.take().map(|fault| fault.kind) } else { None }
        })
    }

    /// Whether to drop a published message; counts it if so.
    pub(super) fn drops_push(&self) -> bool {
        self.change(|state| {
            state.pushes_dropped += u64::from(state.dropping_pushes);
            state.dropping_pushes
        })
    }

    pub(super) fn hold(&self, new_links_too: bool) {
        self.change(|state| state.holding_new_links = new_links_too);
        self.links().iter().for_each(|link| link.hold());
    }

    pub(super) fn release(&self) {
        // The flag first, so that no link comes up that holds after all were released.
        self.change(|state| state.holding_new_links = false);
        self.links().iter().for_each(|link| link.release());
    }

    pub(super) fn cut(&self) {
        let links = self.change(|state| std::mem::take(&mut state.links));
        links.iter().for_each(|link| link.close());
    }

    /// Takes in a new link, unless it came too late: judged under the same lock as the calls
    /// that cut links, so that none slips through.
    pub(super) fn admit(&self, link: &Arc<Link>) -> bool {
        self.change(|state| {
            if state.closing || state.refusing {
                return false;
            }
            if state.holding_new_links {
                link.hold();
            }
            state.links.push(Arc::clone(link));
            true
        })
    }

    pub(super) fn forget(&self, link: &Arc<Link>) {
        self.change(|state| state.links.retain(|other| !Arc::ptr_eq(other, link)));
    }

    pub(super) fn links(&self) -> Vec<Arc<Link>> {
        self.read(|state| state.links.clone())
    }

    pub(super) fn wait_while_paused(&self) {
        let state = self.state.lock().expect(NO_PANIC);
        let waited = self.changed.wait_while(state, |state| state.paused && !state.closing);
        drop(waited.expect(NO_PANIC));
    }

    pub(super) fn wait_reply_delay(&self) {
        let state = self.state.lock().expect(NO_PANIC);
        let delay = state.reply_delay;
        let waited = self.changed.wait_timeout_while(state, delay, |state| !state.closing);
        drop(waited.expect(NO_PANIC));
    }
}

const NO_PANIC: &str = "no thread of the proxy panics";
