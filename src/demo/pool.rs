//! `pool-thread-1..40` wait as pools do, ten each in epoll, futex, read and sleep. Thread 1 (epoll)
//! and thread 2 (futex) get jobs at random moments; the other 38 never wake.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::epoll;
use rustix::event::{EventfdFlags, eventfd};

use super::burn;
use super::truth::{Meter, Truth};

pub fn start(truth: &Truth) -> std::io::Result<()> {
    let events = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
    let queue = Arc::new(Queue::default());
    for n in 1..=40 {
        // Threads that are never woken wait on their own descriptors and queues.
        let name = format!("pool-thread-{n}");
        match n % 4 {
            1 => {
                let events = if n == 1 {
                    Arc::clone(&events)
                } else {
                    Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?)
                };
                super::thread(truth, &name, move |meter| serve_events(meter, &events))?;
            }
            2 => {
                let queue = if n == 2 { Arc::clone(&queue) } else { Arc::default() };
                super::thread(truth, &name, move |meter| serve_queue(meter, &queue))?;
            }
            3 => {
                let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
                super::thread(truth, &name, move |meter| {
                    wait_in_read(meter, &read);
                    drop(write); // open until here, or the read would end
                })?;
            }
            _ => super::thread(truth, &name, |meter| {
                loop {
                    wait_in_sleep(meter);
                }
            })?,
        }
    }
    super::thread(truth, "pool-waker", move |_| wake_at_random(&events, &queue))
}

/// Jobs that were queued and not taken.
#[derive(Default)]
struct Queue {
    jobs: Mutex<u32>,
    handed_in: Condvar,
}

fn serve_events(meter: &Meter, events: &OwnedFd) {
    let Ok(poll) = epoll::create(epoll::CreateFlags::CLOEXEC) else { return };
    if epoll::add(&poll, events, epoll::EventData::new_u64(0), epoll::EventFlags::IN).is_err() {
        return;
    }
    loop {
        wait_in_epoll(meter, &poll);
        let _ = rustix::io::read(events, &mut [0_u8; 8]);
        handle_job(meter);
    }
}

fn serve_queue(meter: &Meter, queue: &Queue) {
    loop {
        wait_in_futex(meter, queue);
        handle_job(meter);
    }
}

#[inline(never)]
fn wait_in_epoll(meter: &Meter, poll: &OwnedFd) {
    meter.enter("wait_in_epoll");
    let mut event = Vec::with_capacity(1);
    let _ = epoll::wait(poll, rustix::buffer::spare_capacity(&mut event), None);
    meter.leave();
}

#[inline(never)]
fn wait_in_futex(meter: &Meter, queue: &Queue) {
    meter.enter("wait_in_futex");
    let jobs = queue.jobs.lock().unwrap_or_else(PoisonError::into_inner);
    let mut jobs =
        queue.handed_in.wait_while(jobs, |jobs| *jobs == 0).unwrap_or_else(PoisonError::into_inner);
    *jobs -= 1;
    drop(jobs);
    meter.leave();
}

#[inline(never)]
fn wait_in_read(meter: &Meter, pipe: &OwnedFd) {
    meter.enter("wait_in_read");
    let _ = rustix::io::read(pipe, &mut [0_u8; 1]);
    meter.leave();
}

#[inline(never)]
fn wait_in_sleep(meter: &Meter) {
    meter.enter("wait_in_sleep");
    std::thread::sleep(Duration::from_secs(3_600));
    meter.leave();
}

#[inline(never)]
fn handle_job(meter: &Meter) {
    meter.enter("handle_job");
    burn!(2_000);
    meter.leave();
}

/// Gives a job to one of the two threads every 5 to 45 ms.
fn wake_at_random(events: &OwnedFd, queue: &Queue) {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    loop {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::thread::sleep(Duration::from_millis(5 + random % 41));
        if random >> 63 == 0 {
            let _ = rustix::io::write(events, &1_u64.to_ne_bytes());
        } else {
            *queue.jobs.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            queue.handed_in.notify_one();
        }
    }
}
