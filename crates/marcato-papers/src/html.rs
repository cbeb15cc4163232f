//! A report as one HTML page.

use core::fmt::Write;

use crate::markup::escape;
use crate::{Report, Row, text};

const STYLE: &str = "\
:root{color-scheme:light dark;--fg:#1f2328;--muted:#57606a;--bg:#fff;--line:#d0d7de;--ok:#1a7f37;--bad:#b42318}
@media (prefers-color-scheme:dark){:root{--fg:#e6edf3;--muted:#9aa4af;--bg:#14171c;--line:#3a424c;--ok:#57c26f;--bad:#ff8a75}}
body{font:16px/1.5 system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;color:var(--fg);background:var(--bg);margin:2rem auto;padding:0 1rem;max-width:62rem}
h1{font-size:1.7rem;line-height:1.2}h2{font-size:1.25rem;margin-top:2.4rem}
p.run,figcaption,.none{color:var(--muted)}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:1rem 0;font-size:.92rem}
th,td{padding:.3rem .7rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
th{border-bottom-width:2px}td.n,th.n{text-align:right;white-space:nowrap}
td.ok{color:var(--ok)}td.outside{color:var(--bad);font-weight:600}td small{color:var(--muted);font-family:ui-monospace,monospace}
.scroll{overflow-x:auto}figure{margin:1.5rem 0}figure svg{max-width:100%;height:auto}
.summary{font-weight:600}
";

/// See [`Report::to_html`].
pub(crate) fn of(report: &Report) -> String {
    let document = report.document();
    let mut page = String::with_capacity(64 * 1024);
    // Writing to a string cannot fail.
    let _ = page_of(&mut page, report, document);
    page
}

fn page_of(page: &mut String, report: &Report, document: &crate::Document) -> core::fmt::Result {
    write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n",
        title = escape(report.title())
    )?;
    writeln!(page, "<p>{}</p>", escape(report.about()))?;
    writeln!(page, "<p class=\"run\">{}</p>", escape(&document.provenance()))?;
    writeln!(page, "<p class=\"summary\">Rows: {}.</p>", escape(&document.count().to_string()))?;
    for section in report.sections() {
        writeln!(page, "<section>\n<h2>{}</h2>", escape(section.title()))?;
        for paragraph in section.paragraphs() {
            writeln!(page, "<p>{}</p>", escape(paragraph))?;
        }
        for figure in section.figures() {
            writeln!(
                page,
                "<figure id=\"{}\">\n{}\n<figcaption>{}</figcaption>\n</figure>",
                escape(figure.id()),
                figure.svg().trim(),
                escape(figure.caption())
            )?;
        }
        table(page, report.column(), &report.rows_of(section))?;
        page.push_str("</section>\n");
    }
    let others = report.other_rows();
    if !others.is_empty() {
        page.push_str("<section>\n<h2>Other rows</h2>\n");
        table(page, report.column(), &others)?;
        page.push_str("</section>\n");
    }
    if !document.settings().is_empty() {
        page.push_str("<section>\n<h2>Configuration</h2>\n<div class=\"scroll\"><table>\n");
        for (name, value) in document.settings().iter() {
            // A string is shown without its quotes, everything else as JSON.
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            writeln!(page, "<tr><th scope=\"row\">{}</th><td>{}</td></tr>", escape(name), escape(&value))?;
        }
        page.push_str("</table></div>\n</section>\n");
    }
    page.push_str("</body>\n</html>\n");
    Ok(())
}

fn table(page: &mut String, against: &str, rows: &[&Row]) -> core::fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    let lab = rows.iter().any(|row| row.virtual_value().is_some());
    let repeated = rows.iter().any(|row| row.n() > 1);
    write!(
        page,
        "<div class=\"scroll\"><table>\n<tr><th>what</th><th>unit</th><th class=\"n\">{}</th><th class=\"n\">measured</th>",
        escape(against)
    )?;
    if lab {
        page.push_str("<th class=\"n\">virtual</th>");
    }
    if repeated {
        page.push_str("<th class=\"n\">n</th>");
    }
    page.push_str("<th class=\"n\">band</th><th>ok</th></tr>\n");
    for row in rows {
        let number = |page: &mut String, cell: &str| write!(page, "<td class=\"n\">{}</td>", escape(cell));
        write!(
            page,
            "<tr><td>{}<br><small>{}</small></td><td>{}</td>",
            escape(row.what()),
            escape(row.id()),
            row.unit()
        )?;
        number(page, &text::number(row.paper_value()))?;
        number(page, &text::measured(row))?;
        if lab {
            number(page, &text::number(row.virtual_value()))?;
        }
        if repeated {
            number(page, &row.n().to_string())?;
        }
        number(page, &text::band(row))?;
        // Never by colour alone.
        let (class, mark) = match row.ok() {
            Some(true) => ("ok", "✓ ok"),
            Some(false) => ("outside", "✗ outside"),
            None => ("none", "–"),
        };
        writeln!(page, "<td class=\"{class}\">{mark}</td></tr>")?;
    }
    page.push_str("</table></div>\n");
    Ok(())
}
