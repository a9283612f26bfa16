"""Views of Django under its test client, with templates and a database in memory; one view keeps what it renders."""

import django
from django.conf import settings
from django.db import connection, models
from django.http import HttpResponse
from django.template import engines
from django.test import Client
from django.urls import path

settings.configure(
    SECRET_KEY="none",
    ALLOWED_HOSTS=["testserver"],
    ROOT_URLCONF=__name__,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
)
django.setup()


class Article(models.Model):
    title = models.CharField(max_length=80)
    text = models.TextField()

    class Meta:
        app_label = "articles"


rendered = []
TEMPLATE = engines["django"].from_string("{% for one in articles %}<p>{{ one.title }} {{ one.text }}</p>{% endfor %}")


def keep_page(page):
    rendered.append(page.encode() * 3)  # the leak


def index(request, count):
    page = TEMPLATE.render({"articles": Article.objects.all()[:count]})
    keep_page(page)
    return HttpResponse(page)


urlpatterns = [path("index/<int:count>", index)]
with connection.schema_editor() as editor:
    editor.create_model(Article)
Article.objects.bulk_create(Article(title=f"Number {number}", text="<b>" * 100) for number in range(30))
client = Client()
lengths = sum(len(client.get(f"/index/{number % 20 + 1}").content) for number in range(120))
print(lengths, len(rendered), client.get("/nowhere").status_code)
