"""Words of the demo catalogue: topics a language model can tell apart, styles that cut across them."""

TOPICS: dict[str, list[str]] = {
    line.split(":")[0].strip(): line.split(":")[1].split()
    for line in """
    astronomy: telescope nebula orbit comet galaxy eclipse observatory starlight planet asteroid
    cooking: kitchen spice bread oven recipe harvest soup pastry chef feast
    gardening: orchard rose seed greenhouse soil blossom hedge pruning meadow compost
    sailing: harbour schooner anchor tide lighthouse mast voyage regatta reef captain
    jazz: trumpet saxophone ballad rhythm nightclub improvisation drummer swing melody bandleader
    mountaineering: summit glacier rope avalanche ridge basecamp crevasse ascent sherpa blizzard
    medicine: surgeon hospital fever vaccine ward diagnosis nurse epidemic anatomy scalpel
    chess: grandmaster gambit endgame bishop tournament checkmate opening rook clock stalemate
    crime: detective alibi murder witness suspect fingerprint burglary inspector ransom verdict
    romance: wedding letter sweetheart kiss proposal heartbreak courtship bride reunion longing
    knights: castle sword tournament siege crusade armour squire dragon throne chivalry
    robots: android circuit factory sensor automaton algorithm laboratory cyborg engineer machine
    football: striker goalkeeper stadium penalty league referee dressing-room derby midfield trophy
    painting: canvas portrait fresco easel watercolour gallery pigment sketch studio masterpiece
    money: bank merger stock inflation broker ledger bankruptcy dividend trader auction
    war: trench battalion general ambush armistice bomber soldier frontline treaty bunker
    ghosts: haunting seance cemetery phantom attic curse apparition midnight mansion exorcist
    wildlife: wolf savannah migration eagle elephant rainforest cub predator nest safari
    fashion: couture fabric runway silk tailor wardrobe designer corset perfume atelier
    railways: locomotive station tunnel timetable conductor viaduct sleeper signal junction steam
    politics: election senator parliament scandal ballot coalition speech lobbyist referendum minister
    childhood: school playground holiday grandmother bicycle classroom treehouse puppy summer bedtime
    desert: caravan oasis dune camel mirage nomad bazaar sandstorm well sultan
    weaving: loom wool yarn knitting tapestry needle quilt pattern embroidery thread
    """.strip().splitlines()
}

STYLES: dict[str, tuple[list[str], str]] = {
    "beginner's guide": (
        ["simple", "first", "easy", "practical"],
        "Clear steps for newcomers, with exercises",
    ),
    "history": (
        ["forgotten", "ancient", "great", "lost"],
        "A careful history drawn from archives and diaries",
    ),
    "comedy": (["hilarious", "clumsy", "absurd", "cheerful"], "Light, silly and full of jokes"),
    "tragedy": (["bitter", "broken", "last", "lonely"], "A sad and moving story that ends in loss"),
    "adventure": (["daring", "wild", "perilous", "bold"], "Fast, dangerous and told at full speed"),
    "biography": (
        ["remarkable", "private", "restless", "famous"],
        "The true story of one extraordinary life",
    ),
    "mystery": (["secret", "hidden", "silent", "strange"], "A puzzle with clues, lies and a late surprise"),
    "family tale": (["little", "warm", "gentle", "happy"], "For parents and children to share together"),
}

DOMAINS = ("books", "films")
FORMS = ("book", "film")
