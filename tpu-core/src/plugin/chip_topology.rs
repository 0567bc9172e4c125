//! The TPU topology extension. An emulated chip is one chip with one core at the origin, of one
//! process; libtpu answers for its own.

use super::failure::{Answer, Failure};
use super::handle::{Handle, own};
use super::topology::Topology;
use super::wrapped;
use crate::pjrt::{
    Bounds, ChipAt, ChipCount, ChipFlag, ChipQuestion, DeviceAt, DeviceNumbers, DevicePlace,
    PlaceOfNumber, ProcessNumbers, ProcessPlace, Raw,
};

/// Functions that make topologies, or ask about two or none.
const NOT_ONE: [usize; 6] = [0, 2, 3, 29, 30, 31];

/// The function at `index`, whose arguments are at `raw`.
pub fn answer(index: usize, raw: Raw) -> Answer {
    let wrapped = wrapped::get()?;
    if NOT_ONE.contains(&index) {
        return Err(unanswered());
    }
    let question = read::<ChipQuestion>(raw)?;
    let topology = own::<Topology>(question.topology)?;
    if let Some(function) = wrapped.chip_topology(index) {
        let given = std::mem::replace(&mut question.topology, topology.inner());
        let answer = wrapped.call_function(function, question);
        question.topology = given;
        return answer;
    }
    if wrapped.real {
        return Err(unanswered());
    }
    match index {
        1 | 5 | 6 => read::<ChipFlag>(raw)?.flag = false,
        4 => read::<ChipFlag>(raw)?.flag = true,
        7..=15 => read::<ChipCount>(raw)?.count = 1,
        16 => {
            let numbers = read::<ProcessNumbers>(raw)?;
            numbers.count = fill(numbers.numbers, numbers.room.max(0) as usize, &[0])?;
        }
        17 => {
            let numbers = read::<DeviceNumbers>(raw)?;
            numbers.count = fill(numbers.numbers, numbers.room.max(0) as usize, &[0])?;
        }
        18 | 19 => {
            let place = read::<PlaceOfNumber>(raw)?;
            (place.process, place.index) = (0, 0);
        }
        20 => {
            let place = read::<ProcessPlace>(raw)?;
            place.count = fill(place.numbers, place.room, &[0, 0, 0])?;
        }
        21 => read::<ChipAt>(raw)?.chip = 0,
        22 => read::<DeviceAt>(raw)?.device = 0,
        23 => {
            let place = read::<DevicePlace>(raw)?;
            place.count = fill(place.numbers, place.room, &[0, 0, 0])?;
            place.index = 0;
        }
        24..=26 => {
            let bounds = read::<Bounds>(raw)?;
            bounds.count = fill(bounds.numbers, bounds.room, &[1, 1, 1])?;
        }
        _ => return Err(unanswered()),
    }
    Ok(())
}

fn unanswered() -> Failure {
    Failure::unimplemented("the topology of this chip does not tell that")
}

/// The arguments at `raw`, which begin with their size: up to the last field, not what pads it.
fn read<'a, A>(raw: Raw) -> Result<&'a mut A, Failure> {
    super::layouts::checked::<A>(raw, size_of::<A>() - 7)
}

/// Write `values` where the caller has room for them; how many there are.
fn fill(numbers: *mut i32, room: usize, values: &[i32]) -> Result<usize, Failure> {
    if numbers.is_null() || room < values.len() {
        return Err(Failure::invalid("there is no room for the answer"));
    }
    // SAFETY: the caller's array has `room` places.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), numbers, values.len()) };
    Ok(values.len())
}
