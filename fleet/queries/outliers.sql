-- What each host's recordings hold at their peak, beside the others of the same service and version.
select service, version, host, count(*) as recordings, median(peak_bytes) as median_peak_bytes,
  median(leaked_bytes) as median_leaked_bytes
from recordings group by service, version, host
order by median_peak_bytes desc, service, version, host
limit ROWS
