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

function showMap(element) {
  const view = JSON.parse(element.dataset.map);
  const map = L.map(element, { worldCopyJump: true, zoomControl: true, attributionControl: false });
  L.control.scale({ imperial: false }).addTo(map);
  const shown = { layer: null, overlay: L.layerGroup().addTo(map) };

  function select(layer) {
    if (shown.layer) shown.layer.remove();
    shown.layer = makeTileLayer(layer, view.empty_image).addTo(map);
    shown.layer.layer = layer;
  }

  // The panel of one tile: the server renders it, as it renders the page of the same address.
  const panel = document.querySelector("[data-tile-panel]");
  async function explain(tile) {
    const address = `${view.tile_page}?part=1&tile=${encodeURIComponent(tile)}`;
    const answer = await fetch(address);
    panel.innerHTML = await answer.text();
    panel.hidden = false;
    panel.querySelector("h1, h2")?.focus();
  }
  function findTile(place) {
    const layer = shown.layer ? shown.layer.layer : { name: "merged", zoom_min: 0, zoom_max: 21 };
    const zoom = Math.min(Math.max(Math.round(map.getZoom()), layer.zoom_min), layer.zoom_max);
    const { x, y } = map.project(place.wrap(), zoom).divideBy(256).floor();
    const tile = `${zoom}/${x}/${y}`;
    return layer.name === "merged" ? tile : `${layer.name}/${tile}`;
  }
  map.on("click", (event) => explain(findTile(event.latlng)));
  panel.addEventListener("click", (event) => {
    const link = event.target.closest("[data-tile]");
    if (!link) return;
    event.preventDefault();
    explain(link.dataset.tile);
  });

  async function draw(address) {
    shown.overlay.clearLayers();
    if (!address) return;
    const answer = await fetch(address, { headers: { accept: "application/json" } });
    if (!answer.ok) return;
    const found = await answer.json();
    for (const feature of found.features) {
      const [west, south, east, north] = feature.bbox;
      const box = L.rectangle([[south, west], [north, east]], {
        className: feature.class,
        weight: feature.class === "flight-area" ? 2 : 1,
        fill: feature.class !== "flight-area",
        fillOpacity: 0.55,
        color: null,
        fillColor: null,
      });
      box.bindTooltip(document.createTextNode(feature.text).textContent).addTo(shown.overlay);
    }
    if (found.bbox) {
      const [west, south, east, north] = found.bbox;
      map.fitBounds([[south, west], [north, east]], { padding: [30, 30] });
    }
  }

  const [west, south, east, north] = view.bounds;
  map.fitBounds([[south, west], [north, east]], { padding: [20, 20] });
  if (view.layers.length) select(view.layers[0]);
  for (const input of $$("[data-layer]")) {
    input.addEventListener("change", () =>
      select(view.layers.find((layer) => layer.name === input.value)));
  }
  for (const field of $$("[data-overlay]")) {
    const drawSelected = () => draw(field.value && `${field.dataset.overlay}${encodeURIComponent(field.value)}`);
    field.addEventListener("change", drawSelected);
    if (field.value) drawSelected();
  }
  element.map = map; // for tests
}
$$("[data-map]").forEach(showMap);
