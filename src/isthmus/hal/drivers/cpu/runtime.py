"""The native runtime: walks command lists and spreads launches over threads.

It is LLVM IR text, compiled once per process for the host. `isthmus_step` runs every command
of a list without coming back to Python. A launch of several programs goes through
`GOMP_parallel` of libgomp, so that one pool serves this runtime and PyTorch, or through a pool
of its own: Python threads that live in `isthmus_worker`, spin for a moment after each launch and
then sleep on a futex. Threads take chunks of programs from an atomic counter; which thread runs
which program never changes a result.
"""

from __future__ import annotations

import numpy as np

__all__ = ["COMMAND", "COPY", "FILL", "LAUNCH", "RUNTIME_IR", "THREADING"]

LAUNCH, COPY, FILL = 0, 1, 2

#: One command. Copies: entry is the target, args the source. Fills: chunk is the byte.
COMMAND = np.dtype(
    [
        ("entry", np.uint64),
        ("args", np.uint64),
        ("grid", np.int32, (3,)),
        ("kind", np.int32),
        ("total", np.int64),
        ("chunk", np.int64),
    ],
    align=True,
)

#: How launches are threaded; mode 0 runs all in the calling thread, 1 libgomp, 2 own pool.
THREADING = np.dtype(
    [
        ("mode", np.int32),
        ("threads", np.int32),
        ("gomp_parallel", np.uint64),
        ("thread_number", np.uint64),
        ("pool", np.uint64),
        ("scratch", np.uint64),
        ("scratch_stride", np.int64),
    ],
    align=True,
)

#: Words of the own pool, each on a cache line of its own (64 bytes apart).
#: 0 generation, 1 workers done, 2 sleepers, 3 job pointer, 4 stop flag
POOL_BYTES = 64 * 8

RUNTIME_IR = """
%Command = type { ptr, ptr, [3 x i32], i32, i64, i64 }
%Threading = type { i32, i32, ptr, ptr, ptr, ptr, i64 }
%Time = type { i64, i64 }
; threading, entry, args, grid, total, chunk, then the counter on a line of its own
%Job = type { ptr, ptr, ptr, ptr, i64, i64, [16 x i8], i64 }

declare i32 @clock_gettime(i32, ptr)
declare i64 @syscall(i64, ...)
declare ptr @memcpy(ptr, ptr, i64)
declare ptr @memset(ptr, i32, i64)

define internal void @share(ptr %job, i32 %thread) nounwind {
  %threading_p = getelementptr %Job, ptr %job, i32 0, i32 0
  %threading = load ptr, ptr %threading_p
  %entry_p = getelementptr %Job, ptr %job, i32 0, i32 1
  %entry = load ptr, ptr %entry_p
  %args_p = getelementptr %Job, ptr %job, i32 0, i32 2
  %args = load ptr, ptr %args_p
  %grid_p = getelementptr %Job, ptr %job, i32 0, i32 3
  %grid = load ptr, ptr %grid_p
  %total_p = getelementptr %Job, ptr %job, i32 0, i32 4
  %total = load i64, ptr %total_p
  %chunk_p = getelementptr %Job, ptr %job, i32 0, i32 5
  %chunk = load i64, ptr %chunk_p
  %next_p = getelementptr %Job, ptr %job, i32 0, i32 7
  %base_p = getelementptr %Threading, ptr %threading, i32 0, i32 5
  %base = load ptr, ptr %base_p
  %stride_p = getelementptr %Threading, ptr %threading, i32 0, i32 6
  %stride = load i64, ptr %stride_p
  %thread64 = zext i32 %thread to i64
  %offset = mul i64 %thread64, %stride
  %scratch = getelementptr i8, ptr %base, i64 %offset
  br label %take
take:
  %begin = atomicrmw add ptr %next_p, i64 %chunk monotonic
  %more = icmp slt i64 %begin, %total
  br i1 %more, label %work, label %out
work:
  %limit = add i64 %begin, %chunk
  %short = icmp slt i64 %limit, %total
  %end = select i1 %short, i64 %limit, i64 %total
  call void %entry(ptr %args, ptr %grid, i64 %begin, i64 %end, ptr %scratch)
  br label %take
out:
  ret void
}

define internal void @gomp_body(ptr %job) nounwind {
  %threading_p = getelementptr %Job, ptr %job, i32 0, i32 0
  %threading = load ptr, ptr %threading_p
  %number_p = getelementptr %Threading, ptr %threading, i32 0, i32 3
  %number = load ptr, ptr %number_p
  %thread = call i32 %number()
  call void @share(ptr %job, i32 %thread)
  ret void
}

; A worker of the own pool: thread numbers start at 1, the caller of a step is 0.
define void @isthmus_worker(ptr %pool, i32 %thread, i64 %seen, i64 %futex, i64 %spins) nounwind {
  %done_p = getelementptr i8, ptr %pool, i64 64
  %sleepers_p = getelementptr i8, ptr %pool, i64 128
  %job_p = getelementptr i8, ptr %pool, i64 192
  %stop_p = getelementptr i8, ptr %pool, i64 256
  %first = trunc i64 %seen to i32
  br label %idle
idle:
  %last = phi i32 [ %first, %0 ], [ %new, %after ]
  br label %spin
spin:
  %turn = phi i64 [ 0, %idle ], [ %turn_next, %spin_more ]
  %now = load atomic i32, ptr %pool acquire, align 4
  %changed = icmp ne i32 %now, %last
  br i1 %changed, label %awake, label %spin_more
spin_more:
  %turn_next = add i64 %turn, 1
  %tired = icmp uge i64 %turn_next, %spins
  br i1 %tired, label %sleep, label %spin
sleep:
  %s0 = atomicrmw add ptr %sleepers_p, i32 1 seq_cst
  %w = call i64 (i64, ...) @syscall(i64 %futex, ptr %pool, i32 128, i32 %last, ptr null, ptr null, i32 0)
  %s1 = atomicrmw sub ptr %sleepers_p, i32 1 seq_cst
  %later = load atomic i32, ptr %pool acquire, align 4
  %woken = icmp ne i32 %later, %last
  br i1 %woken, label %awake, label %sleep
awake:
  %new = phi i32 [ %now, %spin ], [ %later, %sleep ]
  %stop = load atomic i32, ptr %stop_p acquire, align 4
  %stopping = icmp ne i32 %stop, 0
  br i1 %stopping, label %out, label %work
work:
  %job = load ptr, ptr %job_p
  call void @share(ptr %job, i32 %thread)
  br label %after
after:
  %d = atomicrmw add ptr %done_p, i32 1 acq_rel
  br label %idle
out:
  ret void
}

; Start a new generation and wake who sleeps (also used to stop the pool).
define void @isthmus_pool_wake(ptr %pool, i64 %futex) nounwind {
  %sleepers_p = getelementptr i8, ptr %pool, i64 128
  %g = atomicrmw add ptr %pool, i32 1 seq_cst
  %sleepers = load atomic i32, ptr %sleepers_p seq_cst, align 4
  %any = icmp ne i32 %sleepers, 0
  br i1 %any, label %wake, label %out
wake:
  %w = call i64 (i64, ...) @syscall(i64 %futex, ptr %pool, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  br label %out
out:
  ret void
}

define internal void @pool_run(ptr %pool, ptr %job, i32 %threads, i64 %futex, i64 %yield) nounwind {
  %done_p = getelementptr i8, ptr %pool, i64 64
  %job_p = getelementptr i8, ptr %pool, i64 192
  store ptr %job, ptr %job_p
  store atomic i32 0, ptr %done_p release, align 4
  call void @isthmus_pool_wake(ptr %pool, i64 %futex)
  call void @share(ptr %job, i32 0)
  %workers = sub i32 %threads, 1
  br label %wait
wait:
  %turn = phi i64 [ 0, %0 ], [ %turn_next, %again ]
  %done = load atomic i32, ptr %done_p acquire, align 4
  %all = icmp uge i32 %done, %workers
  br i1 %all, label %out, label %more
more:
  %turn_next = add i64 %turn, 1
  %tired = icmp uge i64 %turn_next, 20000
  br i1 %tired, label %rest, label %again
rest:
  %y = call i64 (i64, ...) @syscall(i64 %yield)
  br label %again
again:
  br label %wait
out:
  ret void
}

define void @isthmus_step(ptr %commands, i64 %count, ptr %threading, ptr %profile, i64 %futex, i64 %yield) nounwind {
  %job = alloca %Job, align 64
  %before = alloca %Time
  %after = alloca %Time
  %mode_p = getelementptr %Threading, ptr %threading, i32 0, i32 0
  %mode = load i32, ptr %mode_p
  %threads_p = getelementptr %Threading, ptr %threading, i32 0, i32 1
  %threads = load i32, ptr %threads_p
  %gomp_p = getelementptr %Threading, ptr %threading, i32 0, i32 2
  %gomp = load ptr, ptr %gomp_p
  %pool_p = getelementptr %Threading, ptr %threading, i32 0, i32 4
  %pool = load ptr, ptr %pool_p
  %scratch_p = getelementptr %Threading, ptr %threading, i32 0, i32 5
  %scratch = load ptr, ptr %scratch_p
  %profiling = icmp ne ptr %profile, null
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %loop, label %out
loop:
  %i = phi i64 [ 0, %0 ], [ %i_next, %next ]
  br i1 %profiling, label %clock, label %start
clock:
  %c0 = call i32 @clock_gettime(i32 1, ptr %before)
  br label %start
start:
  %command = getelementptr %Command, ptr %commands, i64 %i
  %entry = load ptr, ptr %command
  %args_p = getelementptr %Command, ptr %command, i32 0, i32 1
  %args = load ptr, ptr %args_p
  %grid = getelementptr %Command, ptr %command, i32 0, i32 2
  %kind_p = getelementptr %Command, ptr %command, i32 0, i32 3
  %kind = load i32, ptr %kind_p
  %total_p = getelementptr %Command, ptr %command, i32 0, i32 4
  %total = load i64, ptr %total_p
  %chunk_p = getelementptr %Command, ptr %command, i32 0, i32 5
  %chunk = load i64, ptr %chunk_p
  switch i32 %kind, label %launch [ i32 1, label %copy
                                    i32 2, label %fill ]
copy:
  %m0 = call ptr @memcpy(ptr %entry, ptr %args, i64 %total)
  br label %end
fill:
  %byte = trunc i64 %chunk to i32
  %m1 = call ptr @memset(ptr %entry, i32 %byte, i64 %total)
  br label %end
launch:
  %one = icmp sle i64 %total, %chunk
  %serial_mode = icmp eq i32 %mode, 0
  %serial = or i1 %one, %serial_mode
  br i1 %serial, label %direct, label %parallel
direct:
  call void %entry(ptr %args, ptr %grid, i64 0, i64 %total, ptr %scratch)
  br label %end
parallel:
  store ptr %threading, ptr %job
  %job1 = getelementptr %Job, ptr %job, i32 0, i32 1
  store ptr %entry, ptr %job1
  %job2 = getelementptr %Job, ptr %job, i32 0, i32 2
  store ptr %args, ptr %job2
  %job3 = getelementptr %Job, ptr %job, i32 0, i32 3
  store ptr %grid, ptr %job3
  %job4 = getelementptr %Job, ptr %job, i32 0, i32 4
  store i64 %total, ptr %job4
  %job5 = getelementptr %Job, ptr %job, i32 0, i32 5
  store i64 %chunk, ptr %job5
  %job7 = getelementptr %Job, ptr %job, i32 0, i32 7
  store atomic i64 0, ptr %job7 release, align 8
  %is_gomp = icmp eq i32 %mode, 1
  br i1 %is_gomp, label %by_gomp, label %by_pool
by_gomp:
  call void %gomp(ptr @gomp_body, ptr %job, i32 %threads, i32 0)
  br label %end
by_pool:
  call void @pool_run(ptr %pool, ptr %job, i32 %threads, i64 %futex, i64 %yield)
  br label %end
end:
  br i1 %profiling, label %record, label %next
record:
  %c1 = call i32 @clock_gettime(i32 1, ptr %after)
  %s_a = load i64, ptr %after
  %s_b = load i64, ptr %before
  %s = sub i64 %s_a, %s_b
  %s_ns = mul i64 %s, 1000000000
  %n_a_p = getelementptr %Time, ptr %after, i32 0, i32 1
  %n_a = load i64, ptr %n_a_p
  %n_b_p = getelementptr %Time, ptr %before, i32 0, i32 1
  %n_b = load i64, ptr %n_b_p
  %n = sub i64 %n_a, %n_b
  %spent = add i64 %s_ns, %n
  %slot = getelementptr i64, ptr %profile, i64 %i
  %so_far = load i64, ptr %slot
  %sum = add i64 %so_far, %spent
  store i64 %sum, ptr %slot
  br label %next
next:
  %i_next = add i64 %i, 1
  %more_commands = icmp slt i64 %i_next, %count
  br i1 %more_commands, label %loop, label %out
out:
  ret void
}
"""
