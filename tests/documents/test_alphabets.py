"""Single-byte texts in many languages are read in their encoding, short ones too."""

import logging

import pytest

from memagent.documents.decoding import detect

# The same scene as people would write it in each language, and short sentences.
TEXTS = [
    (
        "cp1252",
        (
            "Où est passée la clé de la bibliothèque ? L’élève préféré du maître l’a cachée "
            "derrière le vieux chêne, près de l’église. Ça, c’était déjà l’été dernier ; à "
            "Noël, on l’a retrouvée. « Voilà », dit-elle, « ma sœur n’y est pour rien. » Le "
            "cœur léger, ils rentrèrent à la maison."
        ),
    ),
    ("latin-1", "Les élèves étaient très contents. Après le dîner, ils sont allés à la forêt."),
    ("latin-1", "Le café est fermé jusqu'à l'été."),
    (
        "cp1252",
        (
            "Der Müller ließ die Tür offen, als er über die Brücke ging. Schöne Grüße an die "
            "Großmutter! Im Frühling blühen die Äpfel, und die Vögel zwitschern früh am "
            "Morgen. „Natürlich“, sagte sie."
        ),
    ),
    ("latin-1", "Natascha heiratete im Frühling."),
    ("latin-1", "Schöne Grüße aus München."),
    (
        "cp1252",
        (
            "¿Dónde está el niño? El señor Muñoz salió mañana; la canción que cantó el año "
            "pasado todavía se oía en el jardín. ¡Qué día! Según él, así empezó la "
            "revolución."
        ),
    ),
    (
        "cp1252",
        (
            "Não há razão para preocupações: as informações estão à disposição. A mãe comprou"
            " pão e maçãs; o avô também irá à reunião amanhã."
        ),
    ),
    (
        "cp1252",
        (
            "Perché non è più così? La città è già lontana, però la verità verrà a galla. "
            "Martedì andrò all’università."
        ),
    ),
    (
        "cp1252",
        (
            "Flickan gick över bron på kvällen. Där såg hon två älgar och en räv. Hon "
            "försökte springa, men det var för sent."
        ),
    ),
    (
        "cp1252",
        (
            "Pigen løb over gården på vej til søen. Hun så på æblerne, der lå i græsset, og "
            "tænkte på sin bror, der altid spiste rødgrød med fløde."
        ),
    ),
    (
        "cp1252",
        (
            "Hän käveli pitkän matkan metsän läpi järvelle. Siellä näkyi vielä jäätä, ja "
            "kevät oli myöhässä. Äiti odotti kotona."
        ),
    ),
    (
        "cp1252",
        (
            "Það var einu sinni karl og kerling í koti sínu. Þau áttu þrjár dætur, og hét sú "
            "yngsta Helga. Hún var öll önnur en systur hennar."
        ),
    ),
    (
        "cp1252",
        (
            "Coëfficiënt en geërgerd zijn woorden met een trema; vóór alles één café. De "
            "ideeën waren financiële."
        ),
    ),
    (
        "cp1257",
        (
            "Täna läksin ma kooli ja kohtusin oma sõbraga. Talv on sel aastal väga külm, "
            "sellepärast käivad kõik soojade mütsidega. Meie vanaema elab väikeses külas "
            "järve ääres."
        ),
    ),
    (
        "cp1257",
        (
            "Šiandien aš ėjau į mokyklą ir sutikau savo draugą. Žiema šiemet labai šalta, "
            "todėl visi vaikščioja su šiltomis kepurėmis. Mūsų močiutė gyvena mažame kaime "
            "prie ežero, kur vasarą auga žemuogės ir mėlynės. Ačiū už laišką."
        ),
    ),
    (
        "cp1257",
        (
            "Šodien es gāju uz skolu un satiku savu draugu. Ziema šogad ir ļoti auksta, tāpēc"
            " visi staigā siltās cepurēs. Mūsu vecmāmiņa dzīvo mazā ciemā pie ezera, kur "
            "vasarā aug meža zemenes un mellenes. Paldies par vēstuli, ķēniņ."
        ),
    ),
    (
        "cp1250",
        (
            "Dziś poszedłem do szkoły i spotkałem przyjaciela. Zima jest w tym roku bardzo "
            "mroźna, dlatego wszyscy noszą ciepłe czapki. Nasza babcia mieszka w małej wsi "
            "nad jeziorem, gdzie latem rosną poziomki. Dziękuję za list, żegnaj. Zażółć gęślą"
            " jaźń."
        ),
    ),
    (
        "cp1250",
        (
            "Dnes jsem šel do školy a potkal svého přítele. Zima je letos velmi studená, "
            "proto všichni nosí teplé čepice. Naše babička žije v malé vesnici u jezera, kde "
            "v létě rostou jahody. Děkuji za dopis, můj příteli, a ať se ti daří."
        ),
    ),
    (
        "cp1250",
        (
            "Ma elmentem az iskolába, és találkoztam a barátommal. Az idei tél nagyon hideg, "
            "ezért mindenki meleg sapkát hord. Nagymamánk egy kis faluban él a tó mellett, "
            "ahol nyáron erdei szamóca nő. Köszönöm a levelet, őszintén szólva gyönyörű volt,"
            " tűz és fű."
        ),
    ),
    (
        "cp1250",
        (
            "Danas sam išao u školu i sreo prijatelja. Zima je ove godine vrlo hladna, zato "
            "svi nose tople kape. Naša baka živi u malom selu pokraj jezera, gdje ljeti rastu"
            " šumske jagode. Hvala ti na pismu, dođi i ti češće, moći ćemo pričati."
        ),
    ),
    (
        "cp1250",
        (
            "Astăzi am mers la şcoală şi mi-am întâlnit prietenul. Iarna este foarte rece "
            "anul acesta, de aceea toţi poartă căciuli calde. Bunica noastră trăieşte într-un"
            " sat mic lângă lac, unde vara cresc fragi. Mulţumesc pentru scrisoare."
        ),
    ),
    (
        "cp1254",
        (
            "Bugün okula gittim ve arkadaşımla karşılaştım. Bu yıl kış çok soğuk, bu yüzden "
            "herkes sıcak şapka giyiyor. Büyükannemiz gölün kıyısındaki küçük bir köyde "
            "yaşıyor; yazın orada dağ çilekleri yetişir. Mektubun için teşekkür ederim, "
            "ağabey."
        ),
    ),
    (
        "cp1251",
        (
            "Сегодня я пошёл в школу и встретил друга. Зима в этом году очень холодная, "
            "поэтому все носят тёплые шапки. Наша бабушка живёт в маленькой деревне у озера."
        ),
    ),
    (
        "cp1251",
        (
            "Сьогодні я пішов до школи і зустрів друга. Зима цього року дуже холодна, тому "
            "всі носять теплі шапки. Наша бабуся живе в маленькому селі біля озера."
        ),
    ),
    (
        "cp1253",
        (
            "Σήμερα πήγα στο σχολείο και συνάντησα έναν φίλο μου. Ο χειμώνας φέτος είναι πολύ"
            " κρύος, γι' αυτό όλοι φορούν ζεστά καπέλα. Η γιαγιά μας ζει σε ένα μικρό χωριό "
            "δίπλα στη λίμνη."
        ),
    ),
    (
        "cp1255",
        (
            "היום הלכתי לבית הספר ופגשתי חבר. החורף השנה קר מאוד, ולכן כולם חובשים כובעים "
            "חמים. סבתא שלנו גרה בכפר קטן ליד האגם."
        ),
    ),
    (
        "cp1256",
        (
            "ذهبت اليوم إلى المدرسة والتقيت بصديقي. الشتاء هذا العام بارد جدا ولذلك يرتدي "
            "الجميع قبعات دافئة. جدتنا تعيش في قرية صغيرة بجانب البحيرة."
        ),
    ),
    (
        "cp850",
        (
            "Où est passée la clé de la bibliothèque ? L'élève préféré du maître l'a cachée "
            "derrière le vieux chêne, près de l'église."
        ),
    ),
    ("cp1252", "He said “no” — it’s £5 at the café, isn’t it?"),
]
# In Croatian, č, ć, đ and š are è, æ, ð and ¹ of cp1252.
TEXTS += [("iso8859-2", t) for encoding, t in TEXTS if encoding == "cp1250" and t[:5] != "Danas"]
TEXTS.append(("koi8-r", next(text for encoding, text in TEXTS if encoding == "cp1251")))


@pytest.mark.parametrize(("encoding", "text"), TEXTS)
@pytest.mark.parametrize("times", [1, 8])
def test_texts_are_read_in_their_encoding(
    encoding: str, text: str, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    data = (text + "\n").encode(encoding) * times
    with caplog.at_level(logging.WARNING, "memagent"):
        assert data.decode(detect(data, True, "doc")) == data.decode(encoding)
    assert "--encoding" in caplog.text


def test_a_name_from_another_language_changes_nothing() -> None:
    data = ("Où est passée la clé de la bibliothèque de Malmö ? " * 9).encode("cp1252")
    assert detect(data.replace("ö".encode("cp1252"), b"o", 8), True, "doc") == "cp1252"
