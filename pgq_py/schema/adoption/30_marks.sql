-- Copy what consumers of remote queues have marked as done.

do $$
begin
    perform pgq_ext.set_last_tick(consumer_id, subconsumer_id, last_tick_id) from pgq_ext_before.completed_tick;
    perform pgq_ext.set_batch_done(consumer_id, subconsumer_id, last_batch_id) from pgq_ext_before.completed_batch;
    perform pgq_ext.set_event_done(e.consumer_id, e.subconsumer_id, e.batch_id, e.event_id)
        from pgq_ext_before.completed_event e
        join pgq_ext_before.partial_batch p using (consumer_id, subconsumer_id)
        where p.cur_batch_id = e.batch_id;
end;
$$;
