"""Asks `heaptrace mcp` with the official client: argv is the binary, the paths, and JSON questions behind `--`."""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

split = sys.argv.index("--")
binary, *paths = sys.argv[1:split]


async def main():
    server = StdioServerParameters(command=binary, args=["mcp", *paths])
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        hello = await session.initialize()
        tools = (await session.list_tools()).tools
        answers = []
        for question in sys.argv[split + 1 :]:
            name, arguments = json.loads(question)
            answer = await session.call_tool(name, arguments)
            dumped = answer.model_dump(mode="json", by_alias=True)
            answers.append({"error": bool(dumped.get("isError")), "text": "".join(part.text for part in answer.content)})
        hello = hello.model_dump(mode="json", by_alias=True)
        print(
            json.dumps(
                {
                    "version": hello["protocolVersion"],
                    "server": hello["serverInfo"]["name"],
                    "tools": [tool.name for tool in tools],
                    "answers": answers,
                }
            )
        )


asyncio.run(main())
