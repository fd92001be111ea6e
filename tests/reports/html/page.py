"""What the tests look at in a page, and what they do with it."""


def find(page, css):
    return page.find_element("css selector", css)


def names(page):
    """Of the rows that are listed, in their order: of many layers those on paper, where all are in the page."""
    rows = "[...document.querySelectorAll('#table tbody tr:not(.gap)')].map(r => r.querySelector('.name').title)"
    if "windowed" not in find(page, "#table").get_attribute("class"):
        return page.execute_script(f"return {rows}")
    on_paper = "dispatchEvent(new Event('beforeprint')); const names = %s; dispatchEvent(new Event('afterprint'));"
    return page.execute_script(f"{on_paper % rows} return names")


def selected(page):
    return page.find_element("id", "selected-title").text


def dots(page):
    return len(page.find_elements("css selector", "#depth-chart .dot"))


def drag(page, css, start, by):
    """Across an element, from so many pixels beside its middle."""
    from selenium.webdriver.common.action_chains import ActionChains

    chain = ActionChains(page).move_to_element_with_offset(find(page, css), start, 0).click_and_hold()
    chain.move_by_offset(by, 0).release().perform()


def hover(page, css):
    """The middle of an element; what the page says there."""
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(page).move_to_element(find(page, css)).perform()
    return find(page, "#tip").text


def data(page):
    """What the script draws."""
    return page.execute_script("return JSON.parse(document.getElementById('data').textContent)")
