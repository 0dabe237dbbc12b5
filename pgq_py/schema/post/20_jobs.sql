-- Views of jobs. Each state is a branch of its own with a constant label, so that a condition
-- on the state spares the others. For looking and filtering: a branch shows 10,000 jobs of a
-- queue at most, the newest. Applied on every install and upgrade;
-- what is generated for each queue is made anew first.

do $$
declare
    parts  text;
begin
    perform pgq._generate_job_functions(q) from pgq.queue q join pgq.job_queue using (queue_id);
    select string_agg(format(
            'select j.queue_name, j.id, j.type, %1$L::text as state, j.priority, j.attempt, j.max_attempts, j.losses, j.key,'
            ' j.created_at, j.run_at, j.claimed_at, j.finished_at, j.worker, j.claim_id, j.cancel_requested, j.error,'
            ' j.progress, j.payload, j.options'
            ' from pgq.job_queue join pgq.queue q using (queue_id)'
            ' cross join lateral pgq.jobs(q.queue_name, %1$L, null, 10000) j', state), ' union all ')
        into parts from unnest('{scheduled,pending,running,retrying,completed,failed,cancelled}'::text[]) state;
    execute 'create or replace view pgq.job as ' || parts;
end;
$$;
comment on view pgq.job is 'Jobs by state, the newest 10,000 of each; not for counting';

create or replace view pgq.job_stats as select * from pgq.get_job_stats();
comment on view pgq.job_stats is 'Counts per job queue';

create or replace view pgq.worker_info as select * from pgq.get_worker_info();
comment on view pgq.worker_info is 'Workers that send heartbeats, and those that ended within a day';
