"""A service of FastAPI under its test client; one of its endpoints keeps what it is given."""

import fastapi
from fastapi.testclient import TestClient
from pydantic import BaseModel

application = fastapi.FastAPI()
sessions = []


class Order(BaseModel):
    number: int
    items: list[str]


def open_session(order):
    sessions.append(bytes(30_000) + bytes(order.items[0], "utf8"))  # the leak


@application.post("/orders")
def create_order(order: Order):
    open_session(order)
    return {"number": order.number, "items": sorted(order.items)}


@application.get("/orders/{number}")
async def read_order(number: int):
    return {"number": number, "text": "x" * number}


with TestClient(application) as client:
    lengths = 0
    for number in range(250):
        posted = client.post("/orders", json={"number": number, "items": ["pear", "apple"] * (number % 7 + 1)})
        lengths += len(posted.text) + len(client.get(f"/orders/{number}").text)
    print(lengths, len(sessions), client.get("/orders/none").status_code)
