// Orders come in as text, are parsed, kept in maps and vectors, and every sixteenth is refused by an exception that
// passes several frames: mix ORDERS
#include "report.h"
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

struct Dice {
    std::uint64_t state = 1;
    std::uint64_t roll(std::uint64_t sides)
    {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return (state >> 33) % sides;
    }
};

struct Order {
    std::string customer;
    std::vector<std::string> items;
    std::map<std::string, std::string> notes;
};

struct Refused : std::runtime_error {
    using std::runtime_error::runtime_error;
};

std::string written(Dice &dice)
{
    std::string text = "customer-with-a-long-name-" + std::to_string(dice.roll(5000)) + ":";
    for (auto left = 1 + dice.roll(6); left > 0; left--)
        text += "item-number-" + std::to_string(dice.roll(100000)) + "-of-the-catalogue,";
    return text;
}

std::vector<std::string> split(const std::string &text, char at)
{
    std::vector<std::string> parts;
    std::string::size_type from = 0;
    for (auto to = text.find(at); to != std::string::npos; to = text.find(at, from)) {
        parts.push_back(text.substr(from, to - from));
        from = to + 1;
    }
    return parts;
}

void check(const Order &order, Dice &dice)
{
    if (dice.roll(16) == 0)
        throw Refused("the order of " + order.customer + " cannot be delivered");
}

std::unique_ptr<Order> parse(const std::string &text, Dice &dice)
{
    auto order = std::make_unique<Order>();
    order->customer = text.substr(0, text.find(':'));
    order->items = split(text.substr(text.find(':') + 1), ',');
    for (const auto &item : order->items)
        order->notes[item] = "delivered to " + order->customer;
    check(*order, dice);
    return order;
}

class Shop {
public:
    void take(Dice &dice)
    {
        try {
            auto order = parse(written(dice), dice);
            auto &slot = open_[order->customer];
            for (const auto &item : order->items)
                sold_[item] += 1;
            slot = std::move(order);
        } catch (const Refused &refused) {
            log_.emplace_back(refused.what());
        }
        if (log_.size() > 100)
            log_.clear();
        if (sold_.size() > 20000)
            sold_.clear();
    }

private:
    std::unordered_map<std::string, std::unique_ptr<Order>> open_;
    std::map<std::string, int> sold_;
    std::vector<std::string> log_;
};

} // namespace

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    Dice dice;
    {
        Shop shop;
        for (auto left = std::strtoul(argv[1], nullptr, 10); left > 0; left--)
            shop.take(dice);
    }
    report(0);
    return 0;
}
