-- Move what is to be taken over aside, so that our schemas can be made beside it. Its
-- functions name the schema pgq in their bodies; nobody calls them any more.

do $$
declare
    name  text;
begin
    foreach name in array '{pgq,pgq_coop,pgq_ext}'::text[] loop
        if to_regnamespace(name) is not null then
            execute format('alter schema %I rename to %I', name, name || '_before');
        end if;
    end loop;
end;
$$;
