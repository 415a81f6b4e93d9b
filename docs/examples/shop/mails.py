"""`mail.send`: a mail, by the shop's mail server. One that is busy or away is tried again, one that refuses is not.

A mail may arrive twice: the connection may break after the server took it and before it said so. Its Message-ID is the
same every time, by which many mailboxes drop the second one.
"""

import os
import smtplib
from email.message import EmailMessage

from msgspec import Struct
from psycopg import Connection

from dispatcher import Backoff, Context, Failed, Retry, task

SERVER_VARIABLE = "SHOP_SMTP"


class Mail(Struct):
    """What `mail.send` takes."""

    to: str
    subject: str
    text: str


# Every error of a connection is an OSError, and so are smtplib's own.
@task("mail.send", time_limit=60, max_attempts=6, backoff=Backoff(first=2, factor=4, cap=3600), retry_on=OSError)
def send(mail: Mail, context: Context) -> object:
    """Hand the mail over to the server of SHOP_SMTP, `host:port`."""
    message = EmailMessage()
    message["From"] = "shop@example.org"
    message["To"] = mail.to
    message["Subject"] = mail.subject
    message["Message-ID"] = f"<task-{context.task_id}@shop.example.org>"
    message.set_content(mail.text)
    host, _, port = os.environ.get(SERVER_VARIABLE, "localhost:25").rpartition(":")
    try:
        with smtplib.SMTP(host, int(port), timeout=10) as server:
            server.send_message(message)
    except smtplib.SMTPRecipientsRefused as refused:
        raise _refused(*refused.recipients[mail.to]) from None
    except smtplib.SMTPResponseException as refused:
        raise _refused(refused.smtp_code, refused.smtp_error) from None
    return {"attempts": context.attempt}


def announce_shipping(connection: Connection, order: int, to: str) -> int:
    """Submit the mail that an order was sent, in the transaction that notes it: both are there, or neither.

    However often an order is noted, its customer gets one mail: the key belongs to the first. Returns the task's id.
    """
    mail = Mail(to, f"Order {order} is on its way", "Thank you.")
    return send.submit_in(connection, mail, idempotency_key=f"shipped-{order}")


def _refused(code: int, said: bytes | str) -> Exception:
    """Return what to raise: the server's codes of 400 to 499 are of the moment, the others for good."""
    text = said.decode(errors="replace") if isinstance(said, bytes) else said
    reason = f"the mail server answered {code} {text}"
    return Retry(reason=reason) if 400 <= code < 500 else Failed(reason)
