// The one script of the console. Pages work without it: it adds live updates, the map and the theme.

const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

// theme

function toggleTheme() {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = root.dataset.theme || (dark ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  // A cookie, so that the server sends the next page in the same theme.
  document.cookie = `theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
}
$$("[data-theme-toggle]").forEach((button) => button.addEventListener("click", toggleTheme));

// at phone width the navigation scrolls: show the current page

document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

// live updates: the server renders and escapes the fragments

function watch(element) {
  const source = new EventSource(element.dataset.live);
  source.addEventListener("update", (event) => {
    const focused = element.contains(document.activeElement) ? document.activeElement.id : "";
    element.innerHTML = JSON.parse(event.data);
    if (focused) document.getElementById(focused)?.focus();
    element.classList.remove("outdated");
    element.dispatchEvent(new CustomEvent("updated", { bubbles: true }));
  });
  source.addEventListener("failure", (event) => {
    element.classList.add("outdated");
    element.title = JSON.parse(event.data);
  });
  addEventListener("pagehide", () => source.close());
}
$$("[data-live]").forEach(watch);

// forms that apply when a field changes

$$("form[data-auto] select, form[data-auto] input").forEach((field) =>
  field.addEventListener("change", () => field.form.requestSubmit()),
);

// the map

// Leaflet's tile layer, with three differences: it requests only tiles within the stored range; between
// two stored levels it enlarges the coarser one; and unloaded tiles get our empty picture, because
// Leaflet's is a data: URL, which the CSP forbids.
function makeTileLayer(layer, emptyImage) {
  const stored = Object.keys(layer.levels).map(Number).sort((a, b) => a - b);
  const Tiles = L.TileLayer.extend({
    _clampZoom(zoom) {
      return stored.findLast((level) => level <= zoom) ?? stored[0];
    },
    getTileUrl(place) {
      const level = layer.levels[this._getZoomForUrl()];
      const within = level && place.x >= level[0] && place.x <= level[1] &&
        place.y >= level[2] && place.y <= level[3];
      return within ? L.TileLayer.prototype.getTileUrl.call(this, place) : emptyImage;
    },
    _abortLoading() {
      for (const [key, tile] of Object.entries(this._tiles)) {
        if (tile.coords.z === this._tileZoom) continue;
        tile.el.onload = tile.el.onerror = L.Util.falseFn;
        if (tile.el.complete) continue;
        tile.el.src = emptyImage;
        L.DomUtil.remove(tile.el);
        delete this._tiles[key];
        this.fire("tileabort", { tile: tile.el, coords: tile.coords });
      }
    },
    _removeTile(key) {
      if (!this._tiles[key]) return;
      this._tiles[key].el.setAttribute("src", emptyImage);
      L.GridLayer.prototype._removeTile.call(this, key);
    },
  });
  return new Tiles(layer.url, {
    minNativeZoom: layer.zoom_min, maxNativeZoom: layer.zoom_max, maxZoom: 22,
  });
}

// Plan an area: draw a box, take the visible one, type it, or drop a GeoJSON file. The form has all of it.
function planArea(map, form) {
  const { bbox, geojson } = form.elements;
  const button = form.querySelector("[data-draw]");
  const container = map.getContainer();
  const shown = L.featureGroup().addTo(map);
  const style = { className: "plan-area", weight: 3, interactive: false, color: null, fillColor: null, fillOpacity: null };
  let start = null;
  $$("[data-needs-script]", form).forEach((part) => { part.hidden = false; });

  function show() {
    shown.clearLayers();
    const sides = bbox.value.split(",").map(Number);
    if (geojson.value.trim()) {
      try {
        L.geoJSON(JSON.parse(geojson.value), { style: () => style }).addTo(shown);
      } catch {
        // The server explains what is wrong with it.
      }
    } else if (sides.length === 4 && sides.every(Number.isFinite) && bbox.value.trim()) {
      L.rectangle([[sides[1], sides[0]], [sides[3], sides[2]]], style).addTo(shown);
    }
  }
  function setBox(bounds) {
    const sides = [bounds.getWest(), bounds.getSouth(), bounds.getEast(), bounds.getNorth()];
    bbox.value = sides.map((side) => side.toFixed(5)).join(",");
    geojson.value = "";
    show();
  }
  function draw(on) {
    map.dragging[on ? "disable" : "enable"]();
    container.classList.toggle("drawing", on);
    button.setAttribute("aria-pressed", on);
    start = null;
  }
  const isDrawing = () => container.classList.contains("drawing");
  async function read(file) {
    geojson.value = await file.text();
    form.closest("details").open = true;
    geojson.closest("details").open = true;
    show();
    if (shown.getBounds().isValid()) map.fitBounds(shown.getBounds(), { padding: [30, 30] });
  }

  button.addEventListener("click", () => draw(!isDrawing()));
  form.querySelector("[data-use-view]").addEventListener("click", () => setBox(map.getBounds()));
  form.querySelector("[data-geojson]").addEventListener("change", (event) => {
    if (event.target.files[0]) read(event.target.files[0]);
  });
  bbox.addEventListener("input", () => { geojson.value = ""; show(); });
  geojson.addEventListener("input", show);
  container.addEventListener("dragover", (event) => event.preventDefault());
  container.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files[0]) read(event.dataTransfer.files[0]);
  });
  container.addEventListener("pointerdown", (event) => {
    if (!isDrawing() || event.target.closest(".leaflet-control")) return;
    start = map.mouseEventToLatLng(event);
    container.setPointerCapture(event.pointerId);
  });
  container.addEventListener("pointermove", (event) => {
    if (start) setBox(L.latLngBounds(start, map.mouseEventToLatLng(event)));
  });
  container.addEventListener("pointerup", () => {
    if (start) setTimeout(() => draw(false)); // after the click that follows
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && isDrawing()) draw(false);
  });
  show();
  return isDrawing;
}

// The overlay of a flight. Shapes are no stops of the Tab key: the list has the same places as links.
function showOverlay(map, view, field, explain) {
  const info = document.querySelector("[data-overlay-info]");
  const shapes = L.layerGroup().addTo(map);
  const tooltip = L.tooltip({ sticky: true });
  const hidden = new Set();
  const overlay = { zooms: [], zoom: "", damage: false, flight: "" };
  let found = null;

  function addShape(feature) {
    const [west, south, east, north] = feature.bbox;
    const isArea = feature.kind === "area";
    const style = {
      className: isArea ? "flight-area" : `kind-${feature.kind}`,
      weight: isArea ? 3 : 2,
      fill: !isArea,
      fillColor: `url(#pattern-${feature.kind})`,
      fillOpacity: 1,
      color: null,
      interactive: !isArea,
    };
    if (feature.shape) {
      L.geoJSON(feature.shape, { style: () => style, interactive: false }).addTo(shapes);
      return;
    }
    const shape = L.rectangle([[south, west], [north, east]], style).addTo(shapes);
    // Not bindTooltip: its listeners make every shape a stop of the Tab key.
    shape.on("mousemove", (event) => tooltip.setLatLng(event.latlng)
      .setContent(document.createTextNode(feature.text).textContent).openOn(map));
    shape.on("mouseout", () => tooltip.close());
    shape.on("click", (event) => {
      L.DomEvent.stopPropagation(event);
      explain(event.latlng, feature.zoom);
    });
  }
  function draw() {
    shapes.clearLayers();
    tooltip.close();
    const shown = found.features.filter((feature) => !hidden.has(feature.kind));
    shown.reverse().forEach(addShape); // the worst on top, the areas below
    $$("[data-listed]", info).forEach((item) => { item.hidden = hidden.has(item.dataset.listed); });
  }
  async function load({ fit }) {
    overlay.flight = field.value;
    if (!field.value) {
      shapes.clearLayers();
      overlay.zooms = [];
      info.hidden = true;
      return;
    }
    const asked = new URLSearchParams({ flight: field.value });
    if (overlay.zoom) asked.set("zoom", overlay.zoom);
    if (overlay.damage) asked.set("damage", "1");
    const answer = await fetch(`${view.overlay}?${asked}`, { headers: { accept: "application/json" } });
    if (!answer.ok || field.value !== asked.get("flight")) return;
    found = await answer.json();
    overlay.zooms = found.zooms;
    const focused = info.contains(document.activeElement) ? document.activeElement.id : "";
    const isListOpen = info.querySelector("details")?.open;
    info.innerHTML = found.html;
    info.hidden = false;
    if (isListOpen && info.querySelector("details")) info.querySelector("details").open = true;
    $$("[data-kind]", info).forEach((box) => { box.checked = !hidden.has(box.dataset.kind); });
    info.querySelector("[data-overlay-damage]").checked = overlay.damage;
    if (focused) document.getElementById(focused)?.focus();
    draw();
    if (fit && found.bbox) fitBox(map, found.bbox);
    if (!found.is_ready) setTimeout(() => field.value === overlay.flight && load({ fit: false }), 700);
  }

  field.addEventListener("change", () => { overlay.zoom = ""; load({ fit: true }); });
  info.addEventListener("change", ({ target }) => {
    if (target.dataset.kind) {
      hidden[target.checked ? "delete" : "add"](target.dataset.kind);
      draw();
    } else {
      if ("overlayZoom" in target.dataset) overlay.zoom = target.value;
      if ("overlayDamage" in target.dataset) overlay.damage = target.checked;
      load({ fit: false });
    }
  });
  if (field.value) load({ fit: true });
  return overlay;
}

function fitBox(map, [west, south, east, north]) {
  map.fitBounds([[south, west], [north, east]], { padding: [30, 30] });
}

function showMap(element) {
  const view = JSON.parse(element.dataset.map);
  const map = L.map(element, { worldCopyJump: true, zoomControl: true, attributionControl: false });
  L.control.scale({ imperial: false }).addTo(map);
  let shown = null;
  let overlay = { zooms: [], zoom: "" };

  function select(layer) {
    if (shown) shown.remove();
    shown = makeTileLayer(layer, view.empty_image).addTo(map);
    shown.layer = layer;
  }

  // The panel of one tile: the server renders it, as it renders the page of the same address.
  const panel = document.querySelector("[data-tile-panel]");
  const outline = L.layerGroup().addTo(map);
  async function explain(tile) {
    const answer = await fetch(`${view.tile_page}?part=1&tile=${encodeURIComponent(tile)}`);
    panel.querySelector("[data-tile-content]").innerHTML = await answer.text();
    panel.hidden = false;
    outline.clearLayers();
    const heading = panel.querySelector("h1, h2");
    const box = heading?.dataset.tileBbox?.split(",").map(Number);
    if (box) {
      for (const className of ["tile-halo", "tile-outline"]) {
        L.rectangle([[box[1], box[0]], [box[3], box[2]]], { className, fill: false, color: null, interactive: false, weight: null }).addTo(outline);
      }
    }
    panel.scrollIntoView({ block: "nearest" });
    heading?.focus({ preventScroll: true });
  }
  panel.querySelector("[data-close]").addEventListener("click", () => {
    panel.hidden = true;
    outline.clearLayers();
    element.focus();
  });
  // The level of a click: that of the shape, the chosen one, or the nearest that has tiles.
  function explainPlace(place, zoom) {
    const layer = shown?.layer;
    const zooms = overlay.zooms.length ? overlay.zooms : Object.keys(layer?.levels ?? {}).map(Number);
    const now = Math.round(map.getZoom());
    const near = zooms.reduce((best, one) => Math.abs(one - now) < Math.abs(best - now) ? one : best, zooms[0] ?? now);
    const level = zoom ?? (Number(overlay.zoom) || near);
    const { x, y } = map.project(place.wrap(), level).divideBy(256).floor();
    explain(`${layer && layer.name !== "merged" ? `${layer.name}/` : ""}${level}/${x}/${y}`);
  }
  const form = document.querySelector("[data-plan]");
  const isDrawing = form ? planArea(map, form) : () => false;
  map.on("click", (event) => isDrawing() || explainPlace(event.latlng));
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-tile]");
    if (!link || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    if (link.dataset.bbox) fitBox(map, link.dataset.bbox.split(",").map(Number));
    explain(link.dataset.tile);
  });

  const [west, south, east, north] = view.bounds;
  map.fitBounds([[south, west], [north, east]], { padding: [20, 20] });
  if (view.layers.length) select(view.layers[0]);
  for (const input of $$("[data-layer]")) {
    input.addEventListener("change", () =>
      select(view.layers.find((layer) => layer.name === input.value)));
  }
  const field = document.querySelector("[data-overlay]");
  if (field) overlay = showOverlay(map, view, field, (place, zoom) => isDrawing() || explainPlace(place, zoom));
  element.map = map; // for tests
}
$$("[data-map]").forEach(showMap);
