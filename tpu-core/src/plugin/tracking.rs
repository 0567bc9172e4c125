//! Marks a caller sets on a device to follow its own asynchronous work.

use super::device::Device;
use super::failure::Answer;
use super::handle::{Handle, forward, give, take};
use super::wrapped;
use crate::pjrt::{Arguments, AsyncTrackingEventDestroy, DeviceCreateAsyncTrackingEvent, Raw};

struct TrackingEvent {
    inner: Raw,
}

impl Handle for TrackingEvent {
    const NAME: &'static str = "tracking event";

    fn inner(&self) -> Raw {
        self.inner
    }
}

pub fn create(arguments: &mut DeviceCreateAsyncTrackingEvent) -> Answer {
    forward::<_, Device>(arguments, |arguments| &mut arguments.device)?;
    // A plug-in that has nothing to follow gives none.
    if !arguments.event.is_null() {
        arguments.event = give(TrackingEvent {
            inner: arguments.event,
        });
    }
    Ok(())
}

pub fn destroy(arguments: &mut AsyncTrackingEventDestroy) -> Answer {
    let Some(event) = take::<TrackingEvent>(arguments.event) else {
        return Ok(());
    };
    let mut inner = AsyncTrackingEventDestroy::new();
    inner.event = event.inner;
    wrapped::get()?.call(&mut inner)
}
