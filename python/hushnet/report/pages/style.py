"""The page's style sheet: light, dark and paper."""

CSS = """
:root{color-scheme:light dark;--paper:#fff;--ground:#f5f6f8;--ink:#1c2330;--soft:#5a6474;--line:#dde1e8;
--client:#1f6fb5;--server:#8a4fbf;--both:#b5651d;--client-pale:#e6f0f9;--server-pale:#f2eafa;--both-pale:#fbf0e4;
--good:#1d7a4c;--bad:#b3261e;--bad-pale:#fdecea}
@media screen and (prefers-color-scheme:dark){:root{--paper:#181c24;--ground:#101319;--ink:#e7eaf0;--soft:#9ba5b5;
--line:#2e3542;--client:#6cb2ee;--server:#c39bf0;--both:#e8a968;--client-pale:#1b2c3d;--server-pale:#2b2240;
--both-pale:#382b1c;--good:#62c795;--bad:#ff8d84;--bad-pale:#40211f}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1060px;margin:0 auto;padding:36px 20px 60px}
h1{font-size:27px;line-height:1.2;margin:0 0 6px;font-weight:650;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:18px;margin:0 0 4px;font-weight:620}
p{margin:0 0 10px}
.soft{color:var(--soft)}
.sub{color:var(--soft);font-size:13.5px;margin:0 0 14px;max-width:78ch}
.pill{display:inline-block;padding:2px 10px;border-radius:99px;font-size:13px;font-weight:600;margin-right:8px;
background:var(--server-pale);color:var(--server)}
.pill.bad{background:var(--bad-pale);color:var(--bad)}
section{background:var(--paper);border:1px solid var(--line);border-radius:12px;padding:20px 22px;margin-top:18px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:12px;margin-top:18px}
.tile{background:var(--paper);border:1px solid var(--line);border-radius:12px;padding:12px 14px}
.tile b{display:block;font-size:19px;white-space:nowrap;font-weight:640;
letter-spacing:-.01em;font-variant-numeric:tabular-nums}
.tile span{display:block;color:var(--soft);font-size:12.5px;line-height:1.35}
.who{display:grid;grid-template-columns:repeat(auto-fit,minmax(240px,1fr));gap:14px;margin-top:10px}
.who div{border-left:4px solid var(--line);padding:2px 0 2px 12px}
.who .client{border-color:var(--client)}.who .server{border-color:var(--server)}.who .both{border-color:var(--both)}
.who strong{display:block;font-size:13px}
.warn{margin:14px 0 0;padding:9px 12px;border-radius:8px;background:var(--both-pale);font-size:14px}
.wide{overflow-x:auto}
svg{display:block;width:100%;height:auto;min-width:560px}
svg text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;fill:var(--ink)}
svg .dim{fill:var(--soft)}svg .small{font-size:11px}svg .head{font-size:14px;font-weight:650}
svg .mid{text-anchor:middle}svg .end{text-anchor:end}svg .name{font-weight:600}
.c-client{fill:var(--client)}.c-server{fill:var(--server)}.c-both{fill:var(--both)}
.s-client{stroke:var(--client)}.s-server{stroke:var(--server)}.s-both{stroke:var(--both)}
.b-client{fill:var(--client-pale);stroke:var(--client)}.b-server{fill:var(--server-pale);stroke:var(--server)}
.b-both{fill:var(--both-pale);stroke:var(--both)}
.life{stroke:var(--line);stroke-width:2}.grid{stroke:var(--line);stroke-width:1}
.line{fill:none;stroke-width:2}.mark{stroke:var(--soft);stroke-dasharray:5 4}
.measured{fill:none;stroke:var(--ink);stroke-width:1.4}
.track{fill:var(--line)}.good{fill:var(--good)}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:13px;color:var(--soft);margin:0 0 10px}
.legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px;vertical-align:-1px}
.legend .client{background:var(--client)}.legend .server{background:var(--server)}.legend .both{background:var(--both)}
.legend .seen{border:1.5px solid var(--ink)}
.rows{max-height:560px;overflow:auto;border:1px solid var(--line);border-radius:8px}
table{border-collapse:collapse;width:100%;font-size:12.5px;font-variant-numeric:tabular-nums}
th,td{padding:6px 8px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{white-space:normal;vertical-align:bottom;position:sticky;top:0;background:var(--paper);color:var(--soft);font-weight:600}
tr:last-child td{border-bottom:0}
.l{text-align:left}td.t{white-space:normal;min-width:13em}
dl{display:grid;grid-template-columns:minmax(130px,auto) 1fr;gap:5px 18px;margin:8px 0 0;font-size:14px}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
ul{margin:8px 0 0;padding-left:20px;font-size:14px}li{margin:3px 0;overflow-wrap:anywhere}
footer{color:var(--soft);font-size:12.5px;margin-top:20px;overflow-wrap:anywhere}
@media print{@page{margin:14mm}body{background:#fff;font-size:12px}main{max-width:none;padding:0}
section,.tile{border-color:#ccc;border-radius:6px}section{padding:12px 14px;margin-top:12px}
.tiles,.who,figure,svg{break-inside:avoid}.rows{max-height:none;overflow:visible;border:0}th{position:static}
tr{break-inside:avoid}table{font-size:9.5px}th,td{padding:3px 5px;white-space:normal}td.t{min-width:0}
h2{break-after:avoid}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
"""
