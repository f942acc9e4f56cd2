"""A corpus of about 1.5 MB for tokenizer parity, the same on every machine: texts as a list of strings.

Sentences in over twenty scripts are shuffled and joined; random letters of every script, code, numbers, emoji,
whitespace, control characters and mixtures of all follow. Random letters are those of Unicode 3.2, so that engines
with different Unicode tables agree on what they are.
"""

import random
import unicodedata

SENTENCES = [
    "All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience.",
    "It's what they'd have said: we'll see, I'm sure you've done it, and he's DONE'D IT'S.",
    "Tous les êtres humains naissent libres et égaux en dignité et en droits. L'œuvre où naïve, ça ira dès Noël.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Straße, Übergröße, Ärgernis, süß!",
    "Todos los seres humanos nacen libres e iguales en dignidad y derechos. ¿Qué pasó, señor? ¡Mañana!",
    "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Zażółć gęślą jaźń.",
    "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi.",
    "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. İstanbul'da ığdır.",
    "Все люди рождаются свободными и равными в своём достоинстве и правах. Съешь ещё этих булок!",
    "Всі люди народжуються вільними і рівними у своїй гідності та правах. Їжак і ґанок.",
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "Բոլոր մարդիկ ծնվում են ազատ ու հավասար իրենց արժանապատվությամբ ու իրավունքներով։",
    "ყველა ადამიანი იბადება თავისუფალი და თანასწორი თავისი ღირსებითა და უფლებებით.",
    "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. שָׁלוֹם עֲלֵיכֶם",
    "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق. بِسْمِ اللَّهِ ٠١٢٣٤٥٦٧٨٩",
    "تمام افراد بشر آزاد به دنیا می‌آیند و از لحاظ حیثیت و حقوق با هم برابرند. ۱۲۳۴۵",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। १२३",
    "সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা এবং অধিকার নিয়ে জন্মগ্রহণ করে। ১২৩",
    "ਸਾਰਾ ਮਨੁੱਖੀ ਪਰਿਵਾਰ ਆਪਣੀ ਮਹਿਮਾ, ਸ਼ਾਨ ਅਤੇ ਹੱਕਾਂ ਦੇ ਪੱਖੋਂ ਜਨਮ ਤੋਂ ਹੀ ਆਜ਼ਾਦ ਹੈ।",
    "પ્રતિષ્ઠા અને અધિકારોની દૃષ્ટિએ સર્વ માનવો જન્મથી સ્વતંત્ર અને સમાન હોય છે.",
    "மனிதப் பிறிவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்; அவர்கள் மதிப்பிலும் சமமானவர்கள்.",
    "ప్రతిపత్తిస్వత్వముల విషయమున మానవులెల్లరును జన్మతః స్వతంత్రులును సమానులును నగుదురు.",
    "ಎಲ್ಲಾ ಮಾನವರೂ ಸ್ವತಂತ್ರರಾಗಿಯೇ ಜನಿಸಿದ್ದಾರೆ. ಹಾಗೂ ಘನತೆ ಮತ್ತು ಹಕ್ಕುಗಳಲ್ಲಿ ಸಮಾನರಾಗಿದ್ದಾರೆ.",
    "മനുഷ്യരെല്ലാവരും തുല്യാവകാശങ്ങളോടും അന്തസ്സോടും സ്വാതന്ത്ര്യത്തോടുംകൂടി ജനിച്ചവരാണ്.",
    "සියලු මනුෂ්‍යයෝ නිදහස්ව උපත ලබා ඇත. ගරුත්වයෙන් හා අයිතිවාසිකම්වලින් සමාන වෙති.",
    "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ รัก น้ำ ที่นี่ กำลังจะไป ๑๒๓",
    "ມະນຸດທຸກຄົນເກີດມາມີກຽດສັກສີ, ສິດທິ, ເສລີພາບ ແລະຄວາມສະເໝີພາບເທົ່າທຽມກັນ.",
    "လူတိုင်းသည် တူညီ လွတ်လပ်သော ဂုဏ်သိက္ခာဖြင့် လည်းကောင်း၊ မွေးဖွားလာသူများ ဖြစ်သည်။",
    "មនុស្សទាំងអស់ កើតមកមានសេរីភាព និងសមភាព ក្នុងផ្នែកសេចក្ដីថ្លៃថ្នូរនិងសិទ្ធិ។",
    "འགྲོ་བ་མིའི་རིགས་རྒྱུད་ཡོངས་ལ་སྐྱེས་ཙམ་ཉིད་ནས་ཆེ་མཐོངས་དང༌།",
    "የሰው ልጅ ሁሉ ሲወለድ ነጻና በክብርና በመብትም እኩልነት ያለው ነው።",
    "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。",
    "人人生而自由，在尊嚴和權利上一律平等。繁體字：龍、龜、鬱、𠮷、𡈽。",
    "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。ｶﾀｶﾅ ガギグゲゴ ー々〆",
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. ㄱㄴㄷ ㅏㅑ",
    "Хүн бүр төрж мэндлэхдээ эрх чөлөөтэй. ᠬᠦᠮᠦᠨ ᠪᠦᠷ ᠲᠥᠷᠥᠵᠦ",
    "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ ᎠᏂᏴᏫ. ᐃᓄᒃᑎᑐᑦ ᐃᓕᓐᓂᐊᖅ. ᚠᚢᚦᚨᚱᚲ ᚛ᚑᚌᚐᚋ᚜",
]

CODE = [
    "fn main() {\n    let xs: Vec<u32> = (0..10).filter(|x| x % 2 == 0).collect();\n    println!(\"{:?}\", xs);\n}\n",
    "def fib(n: int) -> int:\n\t\"\"\"Doc.\"\"\"\n\treturn n if n < 2 else fib(n - 1) + fib(n - 2)\n\n\n",
    "#include <stdio.h>\r\nint main(void) {\r\n\tprintf(\"%d\\n\", 0x1F & ~3);\r\n\treturn 0;\r\n}\r\n",
    "SELECT u.id, COUNT(*) AS n FROM users u LEFT JOIN orders o ON o.user_id = u.id WHERE n >= 10 GROUP BY 1;\n",
    "<div class=\"a-b\"><a href='https://example.com/a//b/?q=1&r=2#x'>link</a><!-- c --></div>\n",
    "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\", \"days\": [1, 2, 3], \"x\": -1.5e-07, \"n\": null}}\n",
    "export const parseHTTPResponse = async (req) => await fetch(`${req.baseURL}/v1/items?id=${req.itemID}`);\n",
    "for f in *.txt; do sed -i 's/\\/usr\\/local/\\/opt/g' \"$f\" && echo \"done: ${f##*/}\" || exit 1; done\n",
    "public static <T extends Comparable<T>> Optional<T> maxOf(List<T> xs) { /* ... */ return Optional.empty(); }\n",
    "\\begin{equation}\\sum_{i=0}^{n} \\frac{x_i^2}{2} \\le \\alpha \\cdot \\mathbb{E}[X]\\end{equation} % comment\n",
    "////////////////////////////////\n// ---- section ----\n//\n///// doc //\n",
    "| a | b |\n|---|:-:|\n| 1 | **x** |\n\n- [ ] todo\n- [x] _done_\n\n```rust\nlet a = 1;\n```\n\n\n\n",
]

EMOJI = "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇫🇷🇩🇪 ❤️ 😶‍🌫️ 🦙 🚀 ✅ 1️⃣ #️⃣ 👨🏿‍💻 🤷🏼‍♀️ ☃ ☃️ 🧑‍🚒 🫠".split(" ")
SPACES = [" ", "  ", "    ", "\t", "\t\t", "\n", "\n\n", "\r\n", "\r\n\r\n", "\r", " \n", "\n ", "\u00a0", "\u3000"]
SPACES += ["\u2003", "\u2028", "\u2029", "\u0085", "\u1680", "\u200b", "\ufeff", "\u200d", "\x0b", "\x0c", "     \n     "]
BLOCKS = [
    (0x20, 0x7F), (0xA0, 0x180), (0x180, 0x250), (0x250, 0x2B0), (0x300, 0x370), (0x370, 0x400), (0x400, 0x530),
    (0x530, 0x590), (0x590, 0x600), (0x600, 0x700), (0x700, 0x750), (0x780, 0x7C0), (0x900, 0x980), (0x980, 0xA00),
    (0xA00, 0xA80), (0xA80, 0xB00), (0xB00, 0xB80), (0xB80, 0xC00), (0xC00, 0xC80), (0xC80, 0xD00), (0xD00, 0xD80),
    (0xD80, 0xE00), (0xE00, 0xE80), (0xE80, 0xF00), (0xF00, 0x1000), (0x1000, 0x10A0), (0x10A0, 0x1100),
    (0x1100, 0x1200), (0x1200, 0x1380), (0x13A0, 0x1400), (0x1400, 0x1680), (0x1680, 0x16F0), (0x1780, 0x1800),
    (0x1800, 0x18B0), (0x1E00, 0x1F00), (0x1F00, 0x2000), (0x2000, 0x2070), (0x2070, 0x20D0), (0x2100, 0x2150),
    (0x2150, 0x2190), (0x2200, 0x2300), (0x2460, 0x2500), (0x2600, 0x27C0), (0x2E80, 0x2FE0), (0x3000, 0x3040),
    (0x3040, 0x3100), (0x3100, 0x3130), (0x3130, 0x3190), (0x3200, 0x3400), (0x4E00, 0x9FA6), (0xA000, 0xA4D0),
    (0xAC00, 0xD7A4), (0xF900, 0xFA30), (0xFB00, 0xFB50), (0xFB50, 0xFE00), (0xFE70, 0xFF00), (0xFF00, 0xFFF0),
    (0x10300, 0x10350), (0x10400, 0x10450), (0x1D400, 0x1D800), (0x20000, 0x2A6D7), (0x2F800, 0x2FA1E),
]  # fmt: skip


def letters(block):
    old = unicodedata.ucd_3_2_0
    return [chr(code) for code in range(*block) if old.category(chr(code)) not in ("Cn", "Cs")]


def corpus(special):
    """The texts; `special` are texts of control tokens to strew in."""
    rng = random.Random(20240718)
    words = [sentence.split(" ") for sentence in SENTENCES]
    blocks = [letters(block) for block in BLOCKS]
    number = lambda: rng.choice([str(rng.randrange(10 ** rng.randrange(1, 12))), f"{rng.uniform(-1e3, 1e3):.4f}", "0xFF"])
    word = lambda: "".join(rng.choice(block) for block in [rng.choice(blocks)] for _ in range(rng.randrange(1, 9)))
    camel = lambda: "".join(rng.choice(["get", "HTTP", "Json", "x", "ID", "toURL", "Éa", "ß", "ÑU", "ДOм"]) for _ in range(4))
    control = lambda: chr(rng.choice([*range(1, 32), 127, *range(128, 160), 0xAD, 0xFFFD, 0xE000, 0xFFFE]))
    punctuation = lambda: "".join(rng.choice("!?.,;:'\"-_/\\()[]{}<>@#$%^&*+=~`|«»…—’") for _ in range(rng.randrange(1, 7)))
    any_case = lambda: rng.choice([str.upper, str.title, str.swapcase])(rng.choice(rng.choice(words)))
    form = lambda: unicodedata.normalize(rng.choice(["NFC", "NFD", "NFKD"]), rng.choice(rng.choice(words)))
    kinds = [number, word, camel, punctuation, any_case, form, control]
    kinds += [lambda: rng.choice(EMOJI), lambda: rng.choice(["'s", "'LL", "'Re", "n't", "'", "’s"]), lambda: rng.choice(CODE)]

    texts = [*SENTENCES, *CODE, " ".join(EMOJI), *SPACES, "".join(SPACES)]
    texts += [unicodedata.normalize("NFD", sentence) for sentence in SENTENCES]
    for sentence in words:
        texts += [" ".join(rng.choices(sentence, k=60)) for _ in range(12)]
    texts += ["".join(rng.choices(block, k=500)) for block in blocks]
    texts += [" ".join("".join(rng.choices(block, k=rng.randrange(1, 12))) for _ in range(80)) for block in blocks]
    for _ in range(900):
        parts = (rng.choice(kinds)() + rng.choice(SPACES if rng.random() < 0.3 else [" ", " ", ""]) for _ in range(60))
        texts.append("".join(parts))
    for _ in range(100):
        parts = (rng.choice(special) if rng.random() < 0.3 else rng.choice(kinds)() + " " for _ in range(40))
        texts.append("".join(parts))
    size = sum(len(text.encode()) for text in texts)
    assert size > 1_000_000, size
    return texts
