# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""pages.py FROM TO: pages of section 3 out of what Doxygen has made of the headers in the folder
FROM, where each call is a group named call_NAME: the call's page has its name, its prototype as in
the header, and behind its description the fields of a struct of the same name. Other structs keep
pages of their own."""

import datetime
import os
import re
import sys

HEAD = """.TH "{name}" 3 "{date}" "{version}" "ceoverlap"
.SH NAME
{name} \\- {summary}
.SH SYNOPSIS
.nf
#include <{header}>

{prototype}
.fi
.SH DESCRIPTION
{text}
"""


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def title(page):
    """The date and the version in a page's first line."""
    _, date, version = re.match(r'\.TH "([^"]*)" 3 "([^"]*)" "([^"]*)"', page).groups()
    try:
        date = datetime.datetime.strptime(date, "%a %b %d %Y").date().isoformat()
    except ValueError:
        pass
    return date, "ceoverlap " + version.replace("Version ", "")


def clean(text):
    """A section without what is Doxygen's own: empty lines and who made the page."""
    text = re.sub(r'\.SH "?Author.*', "", text, flags=re.S)
    text = re.sub(r"^[ \t]+$|[ \t]+$", "", text, flags=re.M)
    text = re.sub(r"\.PP\n+(?=\.(PP|SS|SH|nf)|$)", "", re.sub(r"\n{2,}", "\n", text))
    return text.strip("\n")


def summary_of(text):
    """The first sentence of a description, for apropos."""
    plain = " ".join(line for line in text.split("\n") if not line.startswith("."))
    plain = re.sub(r"\\f.|\\&", "", plain)
    first = re.split(r"(?<=[a-z)0-9])[.:;](?:\s|$)", plain.strip(), 1)[0].rstrip(".")
    return (first[:1].lower() + first[1:] if len(first) < 90 else first[:87].rsplit(" ", 1)[0]
            + " ...") or "a call of ceoverlap"


def prototype_of(heading):
    """A call as C has it, an argument a line where it is long."""
    plain = re.sub(r"\\f.|\\&", "", heading).replace("* ", "*").replace(" (", "(", 1)
    if len(plain) > 78:
        head, rest = plain.split("(", 1)
        plain = head + "(" + (",\n" + "    ").join(rest.split(", "))
    return plain + ";"


def call_page(name, page, struct):
    date, version = title(page)
    header = re.search(r"a call of (ceoverlap/\w+)\\&\.h", page).group(1) + ".h"
    heading, text = re.search(r'\.SH "Function Documentation"\n\.PP \n\.SS "(.*?)"\n(.*)', page,
                              re.S).groups()
    text = clean(text)
    made = HEAD.format(name=name, date=date, version=version, summary=summary_of(text),
                       header=header, prototype=prototype_of(heading), text=text)
    if struct and "Field Documentation" in struct:
        fields = clean(struct.split('.SH "Field Documentation"', 1)[1])
        made += f'.SH "STRUCT {name}"\n{fields}\n'
    return made + '.SH "SEE ALSO"\nThe headers are the contract: <ceoverlap/ceoverlap.h>.\n'


def struct_page(name, page):
    date, version = title(page)
    fields = clean(page.split('.SH "Field Documentation"', 1)[1])
    about = re.search(r'\.SH "Detailed Description"\n\.PP\s*\n(.*?)\.SH', page, re.S)
    text = clean(about.group(1)) if about else ""
    header = re.search(r"#include <(\w+)\\&\.h>", page)
    return HEAD.format(name=name, date=date, version=version,
                       summary=summary_of(text) if text else f"struct {name} of ceoverlap",
                       header=f"ceoverlap/{header.group(1)}.h" if header else
                       "ceoverlap/ceoverlap.h", prototype=f"struct {name};",
                       text=(text + "\n" if text else "") + fields)


def main():
    source, target = sys.argv[1:]
    pages = {name[:-2]: read(os.path.join(source, name)) for name in os.listdir(source)
             if name.endswith(".3")}
    calls = {name[len("call_"):] for name in pages if name.startswith("call_")}
    made = {name: call_page(name, pages["call_" + name], pages.get(name)) for name in calls}
    made.update({name: struct_page(name, page) for name, page in pages.items()
                 if name.startswith("ceov_") and name not in calls
                 and '.SH "Field Documentation"' in page})
    os.makedirs(target)
    for name, page in made.items():
        with open(os.path.join(target, name + ".3"), "w", encoding="utf-8") as file:
            file.write(page)


if __name__ == "__main__":
    main()
