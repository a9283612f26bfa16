-- How many recordings of each version there are, and the most and the mean of what they hold and leak.
select service, version, count(*) as recordings, max(peak_bytes) as most_peak_bytes, avg(peak_bytes) as mean_peak_bytes,
  max(leaked_bytes) as most_leaked_bytes, avg(leaked_bytes) as mean_leaked_bytes
from recordings group by service, version
order by most_peak_bytes desc, service, version
limit ROWS
