//! Time is paused: every delay below is exact and nothing waits.

use std::time::Duration;

use tokio::time::{advance, timeout};

use super::*;

type Names = Queue<&'static str, u32>;

fn some(objects: &[u32]) -> Touched<u32> {
    Touched::Some(objects.iter().copied().collect())
}

fn started(gather: Gather) -> Names {
    let queue = Names::new();
    queue.start(gather, 7);
    queue
}

fn eager() -> Names {
    started(Gather { at_most: Duration::ZERO })
}

/// How long until the next job, and the job.
async fn wait(queue: &Names) -> (Duration, Job<&'static str, u32>) {
    let began = Instant::now();
    let job = timeout(Duration::from_hours(2), queue.next()).await.expect("no job within two hours");
    (began.elapsed(), job)
}

#[tokio::test(start_paused = true)]
async fn an_idle_key_runs_at_once() {
    let queue = started(Gather::default());
    queue.touch("a", Touch::One(1));
    let (waited, job) = wait(&queue).await;
    assert_eq!(waited, Duration::ZERO);
    assert_eq!(job, Job { key: "a", touched: some(&[1]), attempt: 0 });
}

#[tokio::test(start_paused = true)]
async fn a_key_has_one_pass_at_a_time_and_touches_are_merged() {
    let queue = eager();
    queue.touch("a", Touch::One(1));
    let (_, first) = wait(&queue).await;
    queue.touch("a", Touch::One(2));
    queue.touch("a", Touch::One(3));
    assert_eq!(queue.try_next(), None, "the key is being worked on");
    queue.finish(&first.key, Outcome::Done);
    assert_eq!(queue.try_next().unwrap().touched, some(&[2, 3]));
}

#[tokio::test(start_paused = true)]
async fn a_touch_during_a_pass_is_not_lost() {
    let queue = eager();
    queue.touch("a", Touch::All);
    for object in 0..100 {
        let job = queue.try_next().expect("due");
        queue.touch("a", Touch::One(object));
        queue.finish(&job.key, Outcome::Done);
    }
    assert_eq!(queue.try_next().unwrap().touched, some(&[99]));
}

#[tokio::test(start_paused = true)]
async fn touching_everything_wins_over_touching_one() {
    let queue = eager();
    queue.touch("a", Touch::One(1));
    queue.touch("a", Touch::All);
    queue.touch("a", Touch::One(2));
    assert_eq!(queue.try_next().unwrap().touched, Touched::All);
}

#[tokio::test(start_paused = true)]
async fn a_key_touched_again_waits_as_long_as_its_last_pass_took() {
    let queue = started(Gather::default());
    queue.touch("a", Touch::One(1));
    let (waited, job) = wait(&queue).await;
    assert_eq!(waited, Duration::ZERO);
    // Touched while its pass takes 80 ms: the next pass starts 80 ms later, with all touches until then.
    queue.touch("a", Touch::One(2));
    advance(Duration::from_millis(80)).await;
    queue.finish(&job.key, Outcome::Done);
    advance(Duration::from_millis(30)).await;
    queue.touch("a", Touch::One(3));
    let (waited, job) = wait(&queue).await;
    assert_eq!((waited.as_millis(), job.touched), (50, some(&[2, 3])));
    // A pass of seconds: the pause ends at its limit.
    advance(Duration::from_secs(5)).await;
    queue.finish(&job.key, Outcome::Done);
    queue.touch("a", Touch::One(4));
    let (waited, job) = wait(&queue).await;
    assert_eq!(waited.as_millis(), 300);
    queue.finish(&job.key, Outcome::Done);
    // Touched after the pause: not delayed.
    queue.touch("a", Touch::One(5));
    assert_eq!(wait(&queue).await.0, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn what_is_touched_first_waits_for_no_other_key_and_no_pause() {
    let queue = started(Gather::default());
    advance(Duration::from_millis(1)).await;
    for key in ["a", "b", "c"] {
        queue.touch(key, Touch::One(1));
    }
    advance(Duration::from_millis(1)).await;
    queue.touch_first("d", Touch::One(2));
    let job = queue.try_next().unwrap();
    assert_eq!((job.key, &job.touched), ("d", &some(&[2])));
    // Again during its pass, which takes long.
    queue.touch_first("d", Touch::One(3));
    queue.touch("d", Touch::One(4));
    advance(Duration::from_secs(1)).await;
    queue.finish(&"d", Outcome::Done);
    let job = queue.try_next().unwrap();
    assert_eq!((job.key, &job.touched), ("d", &some(&[3])));
    queue.finish(&"d", Outcome::Retry { class: RetryClass::Transient, objects: some(&[3]) });
    // A server that is down is not asked more often.
    queue.touch_first("d", Touch::One(5));
    assert_eq!(["a", "b", "c"].map(|_| queue.try_next().unwrap().key), ["a", "b", "c"]);
    let (waited, job) = wait(&queue).await;
    assert!(waited > Duration::ZERO && waited <= Duration::from_secs(1), "{waited:?}");
    assert_eq!(job.touched, some(&[3, 4, 5]));
}

#[tokio::test(start_paused = true)]
async fn the_last_change_of_a_burst_waits_two_passes_and_a_pause_at_most() {
    const EVERY: Duration = Duration::from_millis(5);
    const PASS: Duration = Duration::from_millis(60);
    let queue = started(Gather::default());
    let worker = queue.clone();
    let passes = tokio::spawn(async move {
        let (mut passes, mut seen) = (0, 0);
        while seen < 2_000 {
            let job = worker.next().await;
            let Touched::Some(objects) = &job.touched else { panic!("a burst is not a full pass") };
            (passes, seen) = (passes + 1, seen + objects.len());
            tokio::time::sleep(PASS).await;
            worker.finish(&job.key, Outcome::Done);
        }
        (passes, Instant::now())
    });
    for object in 0..2_000 {
        queue.touch("a", Touch::One(object));
        tokio::time::sleep(EVERY).await;
    }
    let last = Instant::now() - EVERY;
    let (passes, ended) = passes.await.unwrap();
    assert!(passes < 100, "{passes} passes in ten seconds: half of the time is pauses");
    assert!(ended - last <= PASS * 3, "the last change waited {:?}", ended - last);
}

#[tokio::test(start_paused = true)]
async fn single_changes_wait_at_most_300_ms() {
    let queue = started(Gather::default());
    for object in 0..1_000 {
        queue.touch("a", Touch::One(object));
        let (waited, job) = wait(&queue).await;
        assert!(waited <= Duration::from_millis(300), "change {object} waited {waited:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
        queue.finish(&job.key, Outcome::Done);
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_changes_a_second_are_each_served_within_a_second() {
    const EVERY: Duration = Duration::from_millis(10);
    let queue = started(Gather::default());
    let began = Instant::now();
    let worker = queue.clone();
    let longest = tokio::spawn(async move {
        let (mut longest, mut seen) = (Duration::ZERO, 0);
        while seen < 6_000 {
            let job = worker.next().await;
            let Touched::Some(objects) = &job.touched else { panic!("not a full pass") };
            seen += objects.len();
            tokio::time::sleep(Duration::from_millis(60)).await;
            let first = began + EVERY * *objects.first().unwrap();
            longest = longest.max(first.elapsed());
            worker.finish(&job.key, Outcome::Done);
        }
        longest
    });
    for object in 0..6_000 {
        queue.touch("a", Touch::One(object));
        tokio::time::sleep_until(began + EVERY * (object + 1)).await;
    }
    let longest = longest.await.unwrap();
    assert!(longest < Duration::from_secs(1), "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn keys_take_turns() {
    let queue = eager();
    for key in ["a", "b", "c"] {
        queue.touch(key, Touch::All);
    }
    let mut order = Vec::new();
    for _ in 0..6 {
        let job = queue.try_next().unwrap();
        order.push(job.key);
        // A key that is touched again and again is queued behind the others each time.
        queue.touch(job.key, Touch::All);
        queue.finish(&job.key, Outcome::Done);
    }
    assert_eq!(order, ["a", "b", "c", "a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn transient_failures_back_off_and_success_resets_the_backoff() {
    let queue = eager();
    queue.touch("a", Touch::One(1));
    let mut delays = Vec::new();
    for attempt in 0..16 {
        let (waited, job) = wait(&queue).await;
        assert_eq!(job.attempt, attempt);
        delays.push(waited.as_secs_f64());
        queue.finish(&job.key, Outcome::Retry { class: RetryClass::Transient, objects: job.touched });
    }
    for (attempt, delay) in delays.iter().enumerate().skip(1) {
        let cap = if attempt <= 12 { 8.0 } else { 30.0 };
        let full = (0.25 * 2_f64.powi(i32::try_from(attempt).unwrap() - 1)).min(cap);
        assert!(*delay >= full / 2.0 - 0.002 && *delay <= full + 0.002, "attempt {attempt}: {delay} of {full}");
    }
    let (_, job) = wait(&queue).await;
    queue.finish(&job.key, Outcome::Done);
    queue.touch("a", Touch::One(1));
    assert_eq!(wait(&queue).await.1.attempt, 0);
}

#[tokio::test(start_paused = true)]
async fn a_new_touch_of_a_failing_key_waits_at_most_a_second() {
    let queue = eager();
    queue.touch("a", Touch::One(1));
    for _ in 0..8 {
        let (_, job) = wait(&queue).await;
        queue.finish(&job.key, Outcome::Retry { class: RetryClass::Transient, objects: job.touched });
    }
    queue.touch("a", Touch::One(2));
    let (waited, job) = wait(&queue).await;
    assert!(waited <= Duration::from_millis(1001), "{waited:?}");
    assert_eq!(job.touched, some(&[1, 2]), "the failed objects are tried in the same pass");
}

#[tokio::test(start_paused = true)]
async fn touches_during_failing_passes_do_not_bypass_the_backoff() {
    let queue = eager();
    queue.touch("a", Touch::One(1));
    for attempt in 1..8 {
        let (_, job) = wait(&queue).await;
        queue.touch("a", Touch::One(1 + attempt));
        queue.finish(&job.key, Outcome::Retry { class: RetryClass::Transient, objects: job.touched });
        assert_eq!(queue.try_next(), None, "not at once after failure {attempt}");
    }
    let (waited, job) = wait(&queue).await;
    assert!(waited > Duration::ZERO && waited <= Duration::from_millis(1001), "{waited:?}");
    assert_eq!(job.touched, some(&[1, 2, 3, 4, 5, 6, 7, 8]));
}

#[tokio::test(start_paused = true)]
async fn a_touch_does_not_shorten_retry_after() {
    let queue = eager();
    queue.touch("a", Touch::One(1));
    let (_, job) = wait(&queue).await;
    let after = Some(Duration::from_secs(20));
    queue.finish(&job.key, Outcome::Retry { class: RetryClass::Throttled { after }, objects: job.touched });
    queue.touch("a", Touch::All);
    let (waited, job) = wait(&queue).await;
    assert!(waited >= Duration::from_secs(20) && waited <= Duration::from_secs(21), "{waited:?}");
    assert_eq!(job.touched, Touched::All);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_retried_at_once_and_then_with_delays() {
    let queue = eager();
    queue.touch("a", Touch::One(1));
    let mut total = Duration::ZERO;
    for attempt in 0..10 {
        let (waited, job) = wait(&queue).await;
        if attempt <= 2 {
            assert_eq!(waited, Duration::ZERO);
        }
        total += waited;
        queue.finish(&job.key, Outcome::Retry { class: RetryClass::Now, objects: job.touched });
    }
    assert!(total > Duration::from_millis(100), "ten conflicts in a row must not spin: {total:?}");
}

#[tokio::test(start_paused = true)]
async fn invalid_objects_are_retried_after_minutes_and_delay_no_others() {
    let queue = eager();
    queue.touch("a", Touch::One(1));
    queue.touch("a", Touch::One(2));
    let (_, job) = wait(&queue).await;
    queue.finish(&job.key, Outcome::Retry { class: RetryClass::Slow, objects: some(&[1]) });
    queue.touch("a", Touch::One(3));
    let (waited, job) = wait(&queue).await;
    assert_eq!((waited, job.touched), (Duration::ZERO, some(&[3])), "the neighbour does not drag the bad one along");
    queue.finish(&job.key, Outcome::Done);
    let (waited, job) = wait(&queue).await;
    assert!(waited >= Duration::from_secs(30) && waited <= Duration::from_secs(61), "{waited:?}");
    assert_eq!(job.touched, some(&[1]));
    queue.finish(&job.key, Outcome::Retry { class: RetryClass::Slow, objects: some(&[1]) });
    assert!(wait(&queue).await.0 >= Duration::from_mins(1), "the second wait is longer");
}

#[tokio::test(start_paused = true)]
async fn a_slow_retry_is_made_at_least_every_five_minutes() {
    let queue = eager();
    queue.touch("a", Touch::One(1));
    let mut longest = Duration::ZERO;
    for _ in 0..20 {
        let (waited, job) = wait(&queue).await;
        longest = longest.max(waited);
        queue.finish(&job.key, Outcome::Retry { class: RetryClass::Slow, objects: some(&[1]) });
    }
    assert!(longest > Duration::from_mins(4) && longest <= Duration::from_mins(5), "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn a_check_is_one_full_pass() {
    let queue = eager();
    queue.touch("a", Touch::One(1));
    let (_, job) = wait(&queue).await;
    queue.finish(&job.key, Outcome::Check { after: Duration::from_mins(10) });
    queue.touch("a", Touch::One(2));
    let (_, job) = wait(&queue).await;
    queue.finish(&job.key, Outcome::Check { after: Duration::from_mins(10) });
    let (waited, job) = wait(&queue).await;
    assert!(waited >= Duration::from_mins(9) && waited <= Duration::from_mins(11), "{waited:?}");
    assert_eq!(job.touched, Touched::All);
    queue.finish(&job.key, Outcome::Done);
    advance(Duration::from_hours(1)).await;
    assert_eq!(queue.try_next(), None);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_delay_is_exact() {
    let queue = eager();
    queue.touch("a", Touch::One(1));
    let (_, job) = wait(&queue).await;
    let class = RetryClass::Fixed(Duration::from_secs(5));
    queue.finish(&job.key, Outcome::Retry { class, objects: some(&[1]) });
    assert_eq!(wait(&queue).await.0.as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn delayed_touches_keep_their_times_and_do_not_accumulate() {
    let queue = eager();
    queue.touch_after("a", Touch::One(2), Duration::from_secs(20));
    queue.touch_after("a", Touch::One(1), Duration::from_secs(10));
    let (waited, job) = wait(&queue).await;
    assert_eq!((waited.as_secs(), job.touched), (10, some(&[1])));
    queue.finish(&job.key, Outcome::Done);
    let (waited, job) = wait(&queue).await;
    assert_eq!((waited.as_secs(), job.touched), (10, some(&[2])));
    queue.finish(&job.key, Outcome::Done);
    for second in 0..1000 {
        queue.touch_after("a", Touch::All, Duration::from_secs(100 + second));
        queue.touch_after("b", Touch::One(1), Duration::from_secs(100 + second));
    }
    let state = queue.lock();
    assert_eq!(state.entries["a"].plans.len(), 1, "one full pass is enough");
    assert!(state.entries["b"].plans.len() <= TIMERS_PER_KEY);
}

#[tokio::test(start_paused = true)]
async fn a_full_pass_replaces_queued_retries() {
    let queue = eager();
    queue.touch("a", Touch::One(1));
    let (_, job) = wait(&queue).await;
    queue.finish(&job.key, Outcome::Retry { class: RetryClass::Slow, objects: some(&[1]) });
    queue.touch("a", Touch::All);
    let (_, job) = wait(&queue).await;
    queue.finish(&job.key, Outcome::Done);
    advance(Duration::from_hours(1)).await;
    assert_eq!(queue.try_next(), None);
}

#[tokio::test(start_paused = true)]
async fn touches_before_the_driver_starts_become_a_full_pass() {
    let queue = Names::new();
    queue.touch("a", Touch::One(1));
    assert_eq!(queue.waiting(), BTreeMap::from([("a", some(&[1]))]));
    queue.start(Gather::default(), 0);
    assert_eq!(queue.try_next().unwrap().touched, Touched::All);
}

#[tokio::test(start_paused = true)]
async fn idle_keys_take_no_memory() {
    let queue = Queue::<u32, u32>::new();
    queue.start(Gather::default(), 0);
    for key in 0..1000 {
        queue.touch(key, Touch::All);
        let job = queue.try_next().unwrap();
        queue.finish(&job.key, Outcome::Done);
    }
    advance(Duration::from_secs(2)).await;
    assert_eq!(queue.try_next(), None);
    assert!(queue.lock().entries.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_key_with_another_pass_has_a_new_pause() {
    const PASS: Duration = Duration::from_millis(300);
    let queue = started(Gather { at_most: PASS });
    for _ in 0..2 {
        queue.touch("a", Touch::One(1));
        let (_, job) = wait(&queue).await;
        advance(PASS).await;
        queue.finish(&job.key, Outcome::Done);
        advance(PASS * 3 / 4).await;
    }
    assert_eq!(queue.try_next(), None);
    assert!(queue.lock().entries.contains_key("a"), "the second rest is not over");
    advance(PASS).await;
    assert_eq!(queue.try_next(), None);
    assert!(queue.lock().entries.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_huge_touched_set_becomes_a_full_pass() {
    let queue = Names::new();
    for object in 0..=u32::try_from(TOUCHED_LIMIT).unwrap() {
        queue.touch("a", Touch::One(object));
    }
    assert_eq!(queue.waiting()["a"], Touched::All);
}

#[tokio::test(start_paused = true)]
async fn several_waiters_each_get_a_job() {
    let queue = eager();
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            tokio::spawn({
                let queue = queue.clone();
                async move { queue.next().await.key }
            })
        })
        .collect();
    tokio::task::yield_now().await;
    for key in ["a", "b", "c"] {
        queue.touch(key, Touch::All);
    }
    let mut keys = Vec::new();
    for waiter in waiters {
        keys.push(timeout(Duration::from_secs(1), waiter).await.expect("woken").unwrap());
    }
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_woken_does_not_wait_for_the_end_of_its_pause() {
    let queue = eager();
    for after in [None, Some(Duration::from_mins(5))] {
        queue.touch("a", Touch::All);
        assert_eq!(wait(&queue).await.1.touched, Touched::All);
        queue.finish(&"a", Outcome::Retry { class: RetryClass::Throttled { after }, objects: Touched::All });
        assert_eq!(queue.try_next(), None);
        queue.wake(&"a");
        assert_eq!(wait(&queue).await.0, Duration::ZERO, "{after:?}");
        queue.finish(&"a", Outcome::Done);
    }
    queue.wake(&"a");
    queue.wake(&"unknown");
    assert_eq!(queue.try_next(), None, "nothing waits");
}
