//! Events: when something on the device is done, for the caller and for the session.

use super::failure::{Answer, Failure, caught};
use super::handle::{Handle, forward, give, own, take};
use super::wrapped;
use crate::pjrt::{
    Arguments, EventAwait, EventCreate, EventDestroy, EventError, EventIsReady, EventOnReady,
    EventSet, Raw,
};
use crate::session::{SESSION, Work};

/// An event of the wrapped plug-in in the caller's hands.
pub struct Event {
    inner: Raw,
}

impl Handle for Event {
    const NAME: &'static str = "event";

    fn inner(&self) -> Raw {
        self.inner
    }
}

/// Our handle for an event of the plug-in; null stays null.
pub fn wrap(inner: Raw) -> Raw {
    if inner.is_null() {
        inner
    } else {
        give(Event { inner })
    }
}

pub fn destroy(arguments: &mut EventDestroy) -> Answer {
    match take::<Event>(arguments.event) {
        Some(event) => destroy_inner(event.inner),
        None => Ok(()),
    }
}

fn destroy_inner(inner: Raw) -> Answer {
    let mut arguments = EventDestroy::new();
    arguments.event = inner;
    wrapped::get()?.call(&mut arguments)
}

pub fn is_ready(arguments: &mut EventIsReady) -> Answer {
    forward::<_, Event>(arguments, |arguments| &mut arguments.event)
}

pub fn error(arguments: &mut EventError) -> Answer {
    forward::<_, Event>(arguments, |arguments| &mut arguments.event)
}

pub fn wait(arguments: &mut EventAwait) -> Answer {
    forward::<_, Event>(arguments, |arguments| &mut arguments.event)
}

pub fn create(arguments: &mut EventCreate) -> Answer {
    wrapped::get()?.call(arguments)?;
    arguments.event = wrap(arguments.event);
    Ok(())
}

pub fn set(arguments: &mut EventSet) -> Answer {
    forward::<_, Event>(arguments, |arguments| &mut arguments.event)
}

/// What a plug-in calls when an event is done: an error or null, and the argument it was given.
type Ready = unsafe extern "C" fn(error: Raw, user: Raw);

/// The caller's function, to be called with an error of ours.
struct Callback {
    function: Ready,
    user: Raw,
}

pub fn on_ready(arguments: &mut EventOnReady) -> Answer {
    let event = own::<Event>(arguments.event)?.inner;
    // SAFETY: the field is a function pointer of this type, or null.
    let function = unsafe { std::mem::transmute::<Raw, Option<Ready>>(arguments.callback) }
        .ok_or_else(|| Failure::invalid("no callback was given"))?;
    listen(
        event,
        Callback {
            function,
            user: arguments.user_arg,
        },
        call_back,
    )
}

unsafe extern "C" fn call_back(error: Raw, user: Raw) {
    // SAFETY: made by `listen`, called once.
    let callback = unsafe { Box::from_raw(user.cast::<Callback>()) };
    let failure = caught("a callback", || failure(error)).unwrap_or_else(Some);
    let error = failure.map_or(std::ptr::null_mut(), Failure::into_raw);
    // SAFETY: the caller's own function and argument; the error is the callee's to free.
    unsafe { (callback.function)(error, callback.user) };
}

/// The error given to a callback, read and freed.
fn failure(error: Raw) -> Option<Failure> {
    if error.is_null() {
        return None;
    }
    Some(wrapped::get().map_or_else(|failure| failure, |wrapped| wrapped.take_error(error)))
}

/// Have `function` called with `user` once `event`, of the wrapped plug-in, is done.
fn listen<T>(event: Raw, user: T, function: Ready) -> Answer {
    let user: Raw = Box::into_raw(Box::new(user)).cast();
    let mut arguments = EventOnReady::new();
    arguments.event = event;
    arguments.callback = function as *mut _;
    arguments.user_arg = user;
    let answer = wrapped::get().and_then(|wrapped| wrapped.call(&mut arguments));
    if answer.is_err() {
        // SAFETY: refused, so the plug-in will not call and nobody else frees it.
        drop(unsafe { Box::from_raw(user.cast::<T>()) });
    }
    answer
}

/// Work and the event that ends it.
struct Watch {
    work: Option<Work>,
    /// To be freed when done; null when the caller frees it.
    event: Raw,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            SESSION.abandon(&work);
        }
        if !self.event.is_null() {
            let _ = destroy_inner(self.event);
        }
    }
}

/// End `work` when `event` of the wrapped plug-in is done. `keep`: the event is the caller's;
/// otherwise it is freed here. Without an event the work has ended already.
pub fn watch(event: Raw, keep: bool, work: Work) {
    if event.is_null() {
        SESSION.finish(work, None);
        return;
    }
    let watch = Watch {
        work: Some(work),
        event: if keep { std::ptr::null_mut() } else { event },
    };
    // A refusal frees the watch, which gives the ticket back.
    let _ = listen(event, watch, finish);
}

unsafe extern "C" fn finish(error: Raw, user: Raw) {
    // SAFETY: made by `listen`, called once.
    let mut watch = unsafe { Box::from_raw(user.cast::<Watch>()) };
    // Whatever happens the ticket is given back: by the session, else by the watch.
    let _ = caught("a callback", move || {
        let failure = failure(error);
        if let Some(work) = watch.work.take() {
            SESSION.finish(
                work,
                failure
                    .as_ref()
                    .map(|failure| (failure.code.0, failure.message.as_str())),
            );
        }
    });
}

/// Keep `value` until `event` of the wrapped plug-in is done; for ever where there is no event.
pub fn keep_until<T: Send + 'static>(event: Raw, value: T) {
    unsafe extern "C" fn done<T>(error: Raw, user: Raw) {
        // SAFETY: made by `listen`, called once.
        let value = unsafe { Box::from_raw(user.cast::<T>()) };
        let _ = caught("a callback", move || {
            drop(failure(error));
            drop(value);
        });
    }
    if event.is_null() {
        std::mem::forget(value);
    } else {
        let _ = listen(event, value, done::<T>);
    }
}

/// Free an event of the wrapped plug-in that nobody waits for.
pub fn discard(inner: Raw) {
    if !inner.is_null() {
        let _ = destroy_inner(inner);
    }
}
