-- What a test of significance needs: for each stack (by the names of its functions) and version the number of recordings,
-- the sum of the bytes and that of their squares. A recording without the stack counts as zero: it is in the number alone.
with
  versions as (select service, version, count(*) as recordings from recordings group by service, version),
  by_names as (select stack, min(names) as names from stacks group by stack),
  each_recording as (
    select by_names.names, sites.service, sites.version, sites.recording, sum(sites.METRIC_bytes) as bytes
    from sites join by_names on by_names.stack = sites.stack
    where sites.METRIC_bytes > 0
    group by by_names.names, sites.service, sites.version, sites.recording
  ),
  moments as (
    select names, service, version, sum(bytes) as total, sum(cast(bytes as double) * cast(bytes as double)) as squares
    from each_recording group by names, service, version
  )
select moments.names, moments.service, moments.version, versions.recordings, moments.total, moments.squares
from moments join versions on versions.service = moments.service and versions.version = moments.version
order by moments.total desc, moments.names, moments.service, moments.version
limit ROWS
