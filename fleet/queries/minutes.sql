-- What the recordings of each version allocated, freed and kept in each minute of the clock.
select minute_unix_ns, service, version, count(distinct recording) as recordings, sum(allocated_bytes) as allocated_bytes,
  sum(freed_bytes) as freed_bytes, sum(allocated_bytes) - sum(freed_bytes) as grown_bytes
from site_minutes group by minute_unix_ns, service, version
order by minute_unix_ns, service, version
limit ROWS
