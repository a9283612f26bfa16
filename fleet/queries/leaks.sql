-- The stacks whose verdict is growing: in how many recordings of which service and version, and how fast.
with
  growing as (
    select service, version, stack, count(distinct recording) as recordings, sum(bytes) as bytes,
      avg(bytes_per_second) as bytes_per_second
    from verdicts where kind = 'growing' group by service, version, stack
  ),
  innermost as (select stack, min(FIRST_FRAME) as frame from stacks group by stack),
  named as (
    select frame, min(function) as function, min(file) as file, min(line) as line from frames where level = 0 group by frame
  )
select growing.service, growing.version, growing.recordings, growing.bytes, growing.bytes_per_second, named.function,
  named.file, named.line
from growing left join innermost on innermost.stack = growing.stack left join named on named.frame = innermost.frame
order by growing.recordings desc, growing.bytes desc, named.function, named.line
limit ROWS
